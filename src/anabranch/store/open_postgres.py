"""Opening a catalog on PostgreSQL. Loads the driver only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors.optional import optional
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    from anabranch.catalog.port import Catalog


def open_postgres(url: str, runtime: Runtime, *, create: bool) -> tuple[Catalog, str]:
    """The catalog, and its address without a password. Raises MissingExtra, and what the adapter raises."""
    with optional("a catalog on PostgreSQL", "postgres"):
        from anabranch.catalog.postgres.adapter import PostgresCatalog
    catalog = PostgresCatalog(url, runtime, create=create)
    return catalog, catalog.shown
