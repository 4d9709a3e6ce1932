"""Look-ups of state and aliases read an index, on SQLite and on PostgreSQL: the databases' own query plans say so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from anabranch.catalog.postgres.pipeline import SQL as POSTGRES_SQL
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.sqlite.reading import SQL as SQLITE_SQL
from anabranch.runtime.ports import Runtime
from tests.contracts.postgres_kit import opened
from tests.postgres_server import drop, fresh_url

# Each statement with parameters, and the columns by which its index finds the rows.
LOOKUPS: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "state": (("job", "a"), ("kind", "key")),
    "states": (("job", 10), ("kind",)),
    "states_between": (("job", "a", "b", 10), ("kind", "key")),
    "states_found": (("job", "open a", 10), ("kind", "lookup")),
    "states_found_between": (("job", "a", "b", 10), ("kind", "lookup")),
    "stream_by_alias": (("s/a",), ("name",)),
    "aliases_of": ((1,), ("stream",)),
}


@pytest.mark.parametrize("statement", LOOKUPS)
def test_sqlite_reads_an_index_and_sorts_nothing(statement: str) -> None:
    values, columns = LOOKUPS[statement]
    catalog = SqliteCatalog(None, Runtime())
    with catalog.reading() as reading:
        database = reading._database  # type: ignore[attr-defined]
        plan = [str(row[3]) for row in database.execute(f"explain query plan {SQLITE_SQL[statement]}", values)]
    catalog.close()
    assert not [step for step in plan if step.startswith(("SCAN", "USE TEMP"))], plan
    first = next(step for step in plan if step.startswith("SEARCH"))
    assert all(f"{column}=?" in first or f"{column}>?" in first for column in columns), plan


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    made = fresh_url()
    with opened(made):
        yield made
    drop(made)


@pytest.mark.parametrize("statement", LOOKUPS)
def test_postgres_reads_an_index_and_sorts_nothing(url: str, statement: str) -> None:
    """The table is empty, so the planner is forbidden what it would rather do: it does it only where no index fits."""
    values, columns = LOOKUPS[statement]
    base, _, schema = url.rpartition("schema=")
    with psycopg.connect(base.rstrip("?&"), autocommit=True) as database:
        database.execute(f"set search_path to {schema}".encode())
        for method in ("seqscan", "sort", "bitmapscan"):
            database.execute(f"set enable_{method} = off".encode())
        found = database.execute(f"explain {POSTGRES_SQL[statement]}".encode(), values).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert "Seq Scan" not in plan and "Sort" not in plan, plan
    conditions = [line for line in plan.splitlines() if "Index Cond" in line]
    assert any(all(column in line for column in columns) for line in conditions), plan
