"""The Parquet files of a stream, read by engines that know nothing of the store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.reading.history.files import HistoryFiles
from anabranch.runtime.keys import new_key_line
from anabranch.runtime.ports import Runtime
from anabranch.store import Store

COLUMNS = pa.schema([("device", pa.string()), ("start", pa.int64()), ("filename", pa.float64())])


@pytest.fixture
def river(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "it's a river", create=True) as store:
        store.scopes.create("iot")
        yield store


def through_duckdb(files: HistoryFiles) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW history AS {files.duckdb_sql()}")
        return sorted(database.execute("SELECT _segment, _offset, * FROM history").fetchall(), key=lambda row: row[:2])


def through_polars(files: HistoryFiles) -> list[tuple[object, ...]]:
    """The positions and the rows, without the append times of attached files."""
    rows: list[tuple[object, ...]] = []
    for file in files.files:
        for part in file.rows:
            frame = pl.scan_parquet(file.path).slice(part.start, part.stop - part.start).collect()
            for number, row in enumerate(frame.iter_rows(named=True)):
                rows.append(
                    (part.segment.packed, part.offset + number, *(row.get(name) for name in files.columns.names))
                )
    return sorted(rows, key=lambda row: row[:2])


def as_read(store: Store, stream: str) -> list[tuple[object, ...]]:
    table = store.history(stream).to_arrow()
    names = ["_segment", "_offset", *table.schema.names]
    return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=lambda row: row[:2])


def test_engines_read_from_the_files_what_the_store_reads(river: Store, tmp_path: Path, seed: int) -> None:
    """Small streams share files; copies, stitches and truncation see parts of them; older files lack newer columns."""
    rng = random.Random(seed)
    for name in ("iot/a", "iot/b"):
        river.streams.create(name, schema=COLUMNS, key="device", scaling=rng.choice((1, 3)))
    for turn in range(4):
        for name in ("iot/a", "iot/b"):
            rows = [
                {"device": rng.choice("xyz"), "start": rng.randrange(1 << 40), "filename": rng.random()}
                for _ in range(rng.randrange(1, 300))
            ]
            with river.writer(name) as writer:
                writer.write_batch(pa.Table.from_pylist(rows, COLUMNS)).result(60)
        if turn != 2:
            river.compact(force=rng.random() < 0.8)
        if turn == 1:
            river.streams.copy("iot/a", "iot/copy")
            river.streams.evolve("iot/a", pa.schema([*COLUMNS, ("later", pa.string())]))
    river.streams.stitch(["iot/copy", "iot/b", "iot/copy"], into="iot/twice")
    river.streams.truncate("iot/b", river.cuts.after("iot/b", events=50))
    river.compact(force=True)
    pq.write_table(
        pa.Table.from_pylist([{"device": "p", "start": 1, "filename": 0.5}] * 7, COLUMNS), tmp_path / "p.parquet"
    )
    river.archives.attach(tmp_path / "p.parquet", "iot/plain", key="device")
    for name in ("iot/a", "iot/b", "iot/copy", "iot/twice", "iot/plain"):
        files = river.history(name).files()
        expected = as_read(river, name)
        assert files.missing == 0
        assert files.events == len(expected)
        assert through_duckdb(files) == expected, name
        assert through_polars(files) == [row[:-3] for row in expected], name


def test_what_was_not_compacted_is_counted(river: Store) -> None:
    river.streams.create("iot/a", schema=COLUMNS)
    rows = pa.Table.from_pylist([{"device": "x", "start": number} for number in range(10)], COLUMNS)
    with river.writer("iot/a") as writer:
        writer.write_batch(rows).result(60)
        files = river.history("iot/a").files()
        assert (files.events, files.missing) == (0, 10)
        assert through_duckdb(files) == []
        river.compact(force=True)
        writer.write_batch(rows.slice(0, 3)).result(60)
    files = river.history("iot/a").files()
    assert (files.events, files.missing) == (10, 3)
    assert repr(files) == "HistoryFiles(stream='iot/a', files=1, events=10, missing=3)"
    early = river.history("iot/a").files(end=river.cuts.after("iot/a", events=4))
    assert [row[1] for row in through_duckdb(early)] == [0, 1, 2, 3]


def test_files_of_an_encrypted_store_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVER_KEYS", new_key_line("first", Runtime().ids))
    with ab.connect(tmp_path / "river", keys="env:RIVER_KEYS", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/a")
        with pytest.raises(InvalidArgument, match="files of an encrypted store can't be read directly"):
            store.history("iot/a").files()


@pytest.mark.parametrize("column", ["start", "_file", "_FILE", "r", "f"])
def test_folders_and_names_do_not_change_the_columns(tmp_path: Path, column: str) -> None:
    """DuckDB takes folders called name=value for columns, unless asked not to."""
    with ab.connect(tmp_path / f"{column}=folder", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/a", schema=pa.schema([(column, pa.string())]))
        with store.writer("iot/a") as writer:
            writer.write({column: "event"})
        store.compact(force=True)
        assert through_duckdb(store.history("iot/a").files()) == as_read(store, "iot/a")


@pytest.mark.parametrize("names", [("b", "B"), ("file_row_number", "a"), ("_Offset", "a")])
def test_columns_that_duckdb_takes_for_each_other_are_refused(river: Store, names: tuple[str, str]) -> None:
    river.streams.create("iot/a", schema=pa.schema([(name, pa.int64()) for name in names]))
    with river.writer("iot/a") as writer:
        writer.write(dict.fromkeys(names, 1))
    river.compact(force=True)
    files = river.history("iot/a").files()
    assert files.events == 1
    with pytest.raises(InvalidArgument, match="DuckDB"):
        files.duckdb_sql()


def test_a_file_that_was_attached_twice_is_read_twice(river: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "p.parquet")
    for name in ("iot/one", "iot/two"):
        river.archives.attach(tmp_path / "p.parquet", name)
    river.streams.stitch(["iot/one", "iot/two"], into="iot/both")
    files = river.history("iot/both").files()
    assert files.events == 6
    assert through_duckdb(files) == as_read(river, "iot/both")
