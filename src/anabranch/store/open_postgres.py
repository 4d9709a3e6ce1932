"""Opening a catalog on PostgreSQL. Loads the driver only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import MissingExtra
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    from anabranch.catalog.port import Catalog


def open_postgres(url: str, runtime: Runtime, *, create: bool) -> tuple[Catalog, str]:
    """The catalog, and its address without a password. Raises MissingExtra, and what the adapter raises."""
    try:
        from anabranch.catalog.postgres.adapter import PostgresCatalog
    except ImportError as exc:
        raise MissingExtra("a catalog on PostgreSQL", "postgres") from exc
    catalog = PostgresCatalog(url, runtime, create=create)
    return catalog, catalog.shown
