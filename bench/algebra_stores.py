"""Shared by the benchmarks of operations on whole streams: catalogs of either kind, and logs without real bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
from anabranch.catalog.sqlite.connection import open_database
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams
from bench import cluster_server as cluster
from bench.features import scopes_of, streams_of
from bench.result import BenchmarkSetting

EVENTS = 100  # per extent

# A row of `extents` for each number n: events of 100 bytes, stored inline as one byte that is never read.
_EXTENT = (
    f"{{log}}, n * {EVENTS}, n * {EVENTS} + {EVENTS}, null, 'arrow', 0, {EVENTS}, 0, 1, 7, n, n, n, n, n, "
    f"(n + 1) * {EVENTS * 100}, {{byte}}"
)
_TABLES = (
    "scopes",
    "streams",
    "schemas",
    "segments",
    "spans",
    "logs",
    "extents",
    "writers",
    "requests",
    "changes",
    "pieces",
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A catalog to measure: `run` executes SQL directly on its database and returns the rows; `size` is the size of
    all rows in bytes, on SQLite with their index entries; `pages` that of all pages in use, which is not known for
    some."""

    kind: str
    catalog: Catalog
    streams: Streams
    run: Callable[[str], list[Any]]
    size: Callable[[], int]
    pages: Callable[[], int] | None = None

    def describe(self, stream: str, extents: int) -> None:
        """Makes the log of an empty stream with one segment hold so many extents."""
        log = next(iter(self.streams.view(stream).logs))
        if self.kind == "SQLite":
            numbers = f"with recursive r (n) as (select 0 union all select n + 1 from r where n + 1 < {extents}) "
            self.run(
                f"insert into extents {numbers} select {_EXTENT.format(log=log, byte=chr(120) + chr(39) + '00' + chr(39))} from r"
            )
        else:
            byte = "'\\x00'"
            self.run(
                f"insert into extents select {_EXTENT.format(log=log, byte=byte)} from generate_series(0::bigint, {extents} - 1) as n"
            )
            # Done now: otherwise the server does it during the measurement, on the same processors.
            self.run("vacuum (analyze) extents")
            self.run("checkpoint")
        self.run(
            f"update logs set length = {extents * EVENTS}, size = {extents * EVENTS * 100}, "
            f"appended_at = {extents}, event_high = {extents} where id = {log}"
        )

    def rows(self) -> int:
        """Returns the number of rows in all tables."""
        return sum(int(self.run(f"select count(*) from {table}")[0][0]) for table in _TABLES)


@contextmanager
def catalogs(setting: BenchmarkSetting) -> Iterator[list[Bench]]:
    """Yields a new catalog of each kind on the measured disk, with the scopes `a` and `b`."""
    folder = setting.folder / "sqlite"
    folder.mkdir()
    with cluster.server(setting) as url, cluster.catalog_at(url, "algebra") as address:
        sqlite, postgres = SqliteCatalog(folder, Runtime()), PostgresCatalog(address, Runtime())
        both = [
            Bench(
                "SQLite",
                sqlite,
                streams_of(sqlite),
                lambda sql: _on_file(folder / FILE, sql),
                lambda: _payload(folder / FILE),
                lambda: _file_size(folder / FILE),
            ),
            Bench(
                "PostgreSQL",
                postgres,
                streams_of(postgres),
                lambda sql: cluster.run(address, sql),
                lambda: _rows_size(address),
            ),
        ]
        try:
            for each in both:
                for scope in "ab":
                    scopes_of(each.catalog).create(scope)
            yield both
        finally:
            for each in both:
                each.catalog.close()


def _on_file(file: Path, sql: str) -> list[Any]:
    # With the catalog's own library: a second one in this process would release the first one's locks by closing its
    # files.
    database = open_database(str(file))
    try:
        return list(database.execute(sql))
    finally:
        database.close()


def _payload(file: Path) -> int:
    """Without unused parts of pages: index pages split in steps, which are not the cost of a single row."""
    return int(_on_file(file, "select sum(payload) from dbstat")[0][0])


def _file_size(file: Path) -> int:
    ((pages,),) = _on_file(file, "pragma page_count")
    ((size,),) = _on_file(file, "pragma page_size")
    ((free,),) = _on_file(file, "pragma freelist_count")
    return int((pages - free) * size)


def _rows_size(address: str) -> int:
    """Without indexes and unused parts of pages: those grow in steps, which are not the cost of a single row."""
    return sum(
        int(cluster.run(address, f"select coalesce(sum(pg_column_size(t)), 0) from {table} t")[0][0])
        for table in _TABLES
    )
