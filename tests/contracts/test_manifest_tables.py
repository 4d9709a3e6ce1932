"""A manifest leaves no table and no column of the catalog out: who adds one has to say how it is copied."""

from __future__ import annotations

from pathlib import Path

import psycopg

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
from anabranch.catalog.tables import TABLES
from anabranch.runtime.ports import Runtime
from tests.catalog_file import ask
from tests.postgres_server import drop, fresh_url

NOT_COPIED = {"meta", "leases", "sqlite_sequence"}
MADE_ANEW = {"digest"}  # of what was copied
COPIED = {table.name: {column.name for column in table.columns if not column.derived} | MADE_ANEW for table in TABLES}


def test_every_column_on_sqlite_is_copied(tmp_path: Path) -> None:
    SqliteCatalog(tmp_path, Runtime()).close()
    names = {name for (name,) in ask(tmp_path / FILE, "select name from sqlite_master where type = 'table'")}
    columns = {name: ask(tmp_path / FILE, f"pragma table_info({name})") for name in names - NOT_COPIED}
    found = {name: {row[1] for row in rows} for name, rows in columns.items()}
    assert found == COPIED


def test_every_column_on_postgres_is_copied() -> None:
    url = fresh_url()
    PostgresCatalog(url, Runtime()).close()
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&")) as database:
        rows = database.execute(
            "select table_name, column_name from information_schema.columns where table_schema = %s", (schema,)
        ).fetchall()
    drop(url)
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    assert {table: columns for table, columns in found.items() if table not in NOT_COPIED} == COPIED
