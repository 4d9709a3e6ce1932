"""What tests of the PostgreSQL catalog share: one that is closed again, waiting, and SQL beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings


@contextmanager
def opened(url: str, *, lock_s: float = 120.0) -> Iterator[PostgresCatalog]:
    catalog = PostgresCatalog(url, Runtime(settings=Settings(catalog_lock_s=lock_s)))
    try:
        yield catalog
    finally:
        catalog.close()


def sql(url: str, text: str) -> list[tuple[object, ...]]:
    """Run a statement beside the catalog's own connections."""
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
        database.execute(f"set search_path to {schema}".encode())
        cursor = database.execute(text.encode())
        return cursor.fetchall() if cursor.description else []
