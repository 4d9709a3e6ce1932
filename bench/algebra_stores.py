"""What the figures of streams like files share: catalogs of either kind, and logs that are described without a body."""

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
from anabranch.model.cut import StreamCut
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams
from bench import cluster_server as cluster
from bench.result import Setting

EVENTS = 100  # of one extent

# A row of `extents` for each number n: events of 100 bytes, carried inline as one byte that nobody reads.
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
    """A catalog to measure: `run` executes SQL behind its back and returns the rows; `size` is that of all rows in bytes,
    on SQLite with their entries in indexes; `pages` that of all pages in use, which some can't tell."""

    kind: str
    catalog: Catalog
    streams: Streams
    run: Callable[[str], list[Any]]
    size: Callable[[], int]
    pages: Callable[[], int] | None = None

    def describe(self, stream: str, extents: int) -> None:
        """Let the log of a stream of one segment, which is empty, hold so many extents."""
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
            # Done now: else the server does it meanwhile, on the processors that are to be measured.
            self.run("vacuum (analyze) extents")
            self.run("checkpoint")
        self.run(
            f"update logs set length = {extents * EVENTS}, size = {extents * EVENTS * 100}, "
            f"appended_at = {extents}, event_high = {extents} where id = {log}"
        )

    def rows(self) -> int:
        """The rows of all tables."""
        return sum(int(self.run(f"select count(*) from {table}")[0][0]) for table in _TABLES)


@contextmanager
def catalogs(setting: Setting) -> Iterator[list[Bench]]:
    """A new catalog of each kind on the disk that counts, with the scopes `a` and `b`."""
    folder = setting.folder / "sqlite"
    folder.mkdir()
    with cluster.server(setting) as url, cluster.catalog_at(url, "algebra") as address:
        sqlite, postgres = SqliteCatalog(folder, Runtime()), PostgresCatalog(address, Runtime())
        both = [
            Bench(
                "SQLite",
                sqlite,
                _manager(sqlite),
                lambda sql: _on_file(folder / FILE, sql),
                lambda: _payload(folder / FILE),
                lambda: _file_size(folder / FILE),
            ),
            Bench(
                "PostgreSQL",
                postgres,
                _manager(postgres),
                lambda sql: cluster.run(address, sql),
                lambda: _rows_size(address),
            ),
        ]
        try:
            for each in both:
                for scope in "ab":
                    each.streams.create_scope(scope)
            yield both
        finally:
            for each in both:
                each.streams.close()
                each.catalog.close()


def _manager(catalog: Catalog) -> Streams:
    return Streams(catalog, Runtime(), cut_at=_no_events, changed=lambda: None)


def _no_events(*_: object) -> StreamCut:
    raise AssertionError("nothing here asks for a time")


def _on_file(file: Path, sql: str) -> list[Any]:
    # By the catalog's own library: a second one in this process would drop the first one's locks with its files.
    database = open_database(str(file))
    try:
        return list(database.execute(sql))
    finally:
        database.close()


def _payload(file: Path) -> int:
    """Without what is unused of pages: pages of an index split by leaps, which say nothing of a single row."""
    return int(_on_file(file, "select sum(payload) from dbstat")[0][0])


def _file_size(file: Path) -> int:
    ((pages,),) = _on_file(file, "pragma page_count")
    ((size,),) = _on_file(file, "pragma page_size")
    ((free,),) = _on_file(file, "pragma freelist_count")
    return int((pages - free) * size)


def _rows_size(address: str) -> int:
    """Without indexes and what is unused of pages: those grow by leaps, which say nothing of a single row."""
    return sum(
        int(cluster.run(address, f"select coalesce(sum(pg_column_size(t)), 0) from {table} t")[0][0])
        for table in _TABLES
    )
