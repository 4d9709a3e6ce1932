"""What a reader yields is Arrow: pyarrow, DuckDB, pandas and polars take it, and a stream takes it back."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, InvalidArgument, MissingExtra, SchemaMismatch
from anabranch.store import Store
from tests.store.helpers import bodies_of

COLUMNS = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("value", pa.float64())])
START = datetime(2026, 5, 1, tzinfo=UTC)
ROWS = [{"device": f"d{n % 5}", "at": START + timedelta(seconds=n), "value": n / 4} for n in range(200)]
ADDED = ["_segment", "_offset", "_appended"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.scopes.create("iot")
        made.streams.create("iot/raw", schema=COLUMNS, key="device", time="at", scaling=2)
        with made.writer("iot/raw") as writer:
            for first in range(0, len(ROWS), 50):
                writer.write_batch(pa.Table.from_pylist(ROWS[first : first + 50], schema=COLUMNS))
                writer.flush()
        yield made


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(({name: row[name] for name in COLUMNS.names} for row in rows), key=lambda row: str(row["at"]))


def test_a_reader_is_read_as_a_table_and_as_a_frame(store: Store) -> None:
    with store.reader("iot/raw") as reader:
        table = reader.to_arrow()
    assert table.column_names == [*COLUMNS.names, *ADDED]
    assert in_order(table.to_pylist()) == ROWS
    with store.reader("iot/raw", columns=["value"]) as reader:
        frame = reader.to_pandas()
    assert list(frame.columns) == ["value", *ADDED]
    assert frame["value"].sum() == sum(n / 4 for n in range(200))
    with store.reader("iot/raw") as reader:
        assert in_order(reader.to_polars().to_dicts()) == ROWS


def test_a_table_holds_what_is_left_from_the_position_on(store: Store) -> None:
    with store.reader("iot/raw", batch_rows=10) as reader:
        first = reader.read()
        assert first is not None
        rest = reader.to_arrow()
        assert reader.to_arrow().num_rows == 0
    assert first.num_rows + rest.num_rows == len(ROWS)


def test_an_empty_stream_is_a_table_without_rows(store: Store) -> None:
    store.streams.create("iot/empty", schema=COLUMNS)
    with store.reader("iot/empty") as reader:
        table = reader.to_arrow()
    assert (table.num_rows, table.column_names) == (0, [*COLUMNS.names, *ADDED])
    assert store.history("iot/empty").to_arrow().schema == table.schema


def test_a_following_reader_has_no_table(store: Store) -> None:
    with store.reader("iot/raw", follow=True) as reader, pytest.raises(InvalidArgument, match="has no end"):
        reader.to_arrow()


def test_libraries_take_the_reader_and_a_history_range_themselves(store: Store) -> None:
    total = sum(n / 4 for n in range(200))
    with store.reader("iot/raw") as reader:
        answer = duckdb.sql("SELECT sum(value) FROM reader")
        assert answer is not None
        assert answer.fetchall() == [(total,)]
    with store.reader("iot/raw") as reader:
        assert pa.table(reader).num_rows == len(ROWS)
    with store.reader("iot/raw") as reader:
        assert pl.DataFrame(reader)["value"].sum() == total
    parts = store.history("iot/raw").ranges()
    assert len(parts) == 2
    assert sum(pa.table(part).num_rows for part in parts) == len(ROWS)
    frames = [pl.DataFrame(part) for part in parts]
    assert pl.concat(frames)["value"].sum() == total
    assert sum(len(part.to_pandas()) for part in parts) == len(ROWS)
    assert sum(part.to_polars(["device"]).shape[0] for part in parts) == len(ROWS)


def test_the_whole_history_is_a_table(store: Store) -> None:
    history = store.history("iot/raw")
    assert in_order(history.to_arrow().to_pylist()) == ROWS
    assert list(history.to_pandas(columns=["value"]).columns) == ["value", *ADDED]
    middle = START + timedelta(seconds=100)
    later = history.to_polars(store.cuts.at("iot/raw", middle, by="event"))
    assert in_order(later.to_dicts()) == ROWS[100:]


def test_a_range_of_a_closed_store_raises_closed(store: Store) -> None:
    (part, *_) = store.history("iot/raw").ranges()
    stream = pa.RecordBatchReader.from_stream(part)
    store.close()
    with pytest.raises(pa.ArrowException, match="closed"):
        stream.read_all()
    with pytest.raises(Closed):
        part.to_arrow()


def test_a_range_that_was_read_to_its_end_is_no_longer_kept_by_the_store(store: Store) -> None:
    before = len(store._open)
    for part in store.history("iot/raw").ranges():
        pa.table(part)
    assert len(store._open) == before


def test_a_range_becomes_a_table_in_another_process(store: Store, tmp_path: Path) -> None:
    (part, *_) = store.history("iot/raw").ranges()
    pickled = tmp_path / "part"
    pickled.write_bytes(pickle.dumps(part))
    code = f"import pickle, pyarrow as pa; print(pa.table(pickle.load(open({str(pickled)!r}, 'rb'))).num_rows)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(part.events)]


def test_what_a_reader_yields_is_written_as_it_is(store: Store) -> None:
    store.streams.create("iot/copy", schema=COLUMNS, key="device", time="at")
    with store.reader("iot/raw") as reader, store.writer("iot/copy") as writer:
        for batch in reader.batches():
            writer.write_batch(batch)
    with store.reader("iot/raw") as reader, store.transaction() as txn:
        txn.writer("iot/copy").write_batch(reader.to_polars())
    with store.reader("iot/raw") as reader, store.writer("iot/copy") as writer:
        writer.write_batch(reader.to_pandas())
    assert in_order(bodies_of(store, "iot/copy")) == in_order([row for row in ROWS for _ in range(3)])


def test_what_a_group_reader_yields_is_committed_as_it_is(store: Store) -> None:
    store.streams.create("iot/copy", schema=COLUMNS, key="device", time="at")
    group = store.groups.open("iot/g", streams=["iot/raw"])
    read = 0
    with group.reader("r", delivery="exactly_once") as reader:
        while read < len(ROWS):
            batch = reader.read(timeout_s=30)
            assert batch is not None
            read += batch.num_rows
            reader.commit({"iot/copy": batch})
    assert in_order(bodies_of(store, "iot/copy")) == ROWS


def test_what_a_reader_yields_replaces_a_time_range_as_it_is(store: Store) -> None:
    hour = (START, START + timedelta(seconds=50))
    with store.reader("iot/raw", between=hour) as reader:
        table = reader.to_arrow()
    assert table.num_rows == 50
    store.streams.replace("iot/raw", between=hour, by="event", with_=table.slice(0, 10))
    assert len(bodies_of(store, "iot/raw")) == len(ROWS) - 40


def test_a_stream_takes_its_columns_from_a_frame_a_table_or_a_reader(store: Store) -> None:
    frame = pd.DataFrame(ROWS)
    store.streams.create("iot/pandas", schema=frame, key="device", time="at")
    store.streams.create("iot/polars", schema=pl.DataFrame(ROWS), key="device", time="at")
    store.streams.create("iot/table", schema=pa.Table.from_pylist(ROWS, schema=COLUMNS), key="device", time="at")
    with store.reader("iot/raw") as reader:
        store.streams.create("iot/reader", schema=reader, key="device", time="at")
        assert reader.to_arrow().num_rows == len(ROWS)  # creating read nothing
    for name in ("pandas", "polars", "table", "reader"):
        assert store.streams.get(f"iot/{name}").schema.columns == COLUMNS
    with store.writer("iot/pandas") as writer:
        writer.write_batch(frame)
    assert bodies_of(store, "iot/pandas") == ROWS


def test_an_index_of_pandas_is_no_column(store: Store) -> None:
    frame = pd.DataFrame(ROWS)
    odd = frame[frame["value"] % 0.5 != 0]  # pandas keeps the row numbers as an index that is no range
    store.streams.create("iot/odd", schema=odd, key="device", time="at")
    assert store.streams.get("iot/odd").schema.columns.names == COLUMNS.names
    with store.writer("iot/odd") as writer:
        writer.write_batch(odd)
    assert bodies_of(store, "iot/odd") == odd.to_dict("records")


def test_a_named_level_of_an_index_is_a_column_where_the_stream_has_it(store: Store) -> None:
    frame = pd.DataFrame(ROWS).set_index("at")
    store.streams.create("iot/indexed", schema=frame, key="device", time="at")
    with store.writer("iot/indexed") as writer:
        writer.write_batch(frame)
    assert in_order(bodies_of(store, "iot/indexed")) == ROWS
    store.streams.create("iot/short", schema=pa.schema([("device", pa.string()), ("value", pa.float64())]))
    with store.writer("iot/short") as writer:
        writer.write_batch(frame)
    assert bodies_of(store, "iot/short") == [{"device": row["device"], "value": row["value"]} for row in ROWS]


def test_other_unknown_columns_are_still_refused(store: Store) -> None:
    with store.writer("iot/raw") as writer, pytest.raises(SchemaMismatch, match="unknown column '_position'"):
        writer.write_batch(pa.table({"device": ["a"], "_position": [1]}))
    with pytest.raises(InvalidArgument, match="can't be named '_offset'"):
        store.streams.create("iot/own", schema=pa.schema([("_offset", pa.int64())]))


def test_metadata_that_only_looks_like_pandas_is_ignored(store: Store) -> None:
    for metadata in (b"not json", b"[]", b'{"index_columns": [{"kind": "range"}, 7]}'):
        table = pa.Table.from_pylist(ROWS[:1], schema=COLUMNS.with_metadata({b"pandas": metadata}))
        with store.writer("iot/raw") as writer:
            writer.write_batch(table)
    assert len(bodies_of(store, "iot/raw")) == len(ROWS) + 3


def test_a_missing_library_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with store.reader("iot/raw") as reader, pytest.raises(MissingExtra, match="pip install polars"):
        reader.to_polars()
    with store.reader("iot/raw") as reader, pytest.raises(MissingExtra, match="pip install pandas"):
        reader.to_pandas()


def test_closing_the_store_waits_for_a_pull_on_another_thread(store: Store) -> None:
    (part, *_) = store.history("iot/raw").ranges()
    stream = pa.RecordBatchReader.from_stream(part)
    ended: list[BaseException | int] = []

    def pull() -> None:
        try:
            ended.append(stream.read_all().num_rows)
        except pa.ArrowException as exc:
            ended.append(exc)

    thread = threading.Thread(target=pull)
    thread.start()
    store.close()
    thread.join()
    assert isinstance(ended[0], pa.ArrowException) or ended[0] == part.events
