"""What writers take from Python: numbers and times are kept as they are, or refused, or understood as the settings say."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import TIME_TYPE
from anabranch.store import Store

COLUMNS = pa.schema([("at", TIME_TYPE), ("n", pa.int64()), ("x", pa.float64()), ("price", pa.decimal128(12, 2))])
NAIVE = datetime(2026, 7, 1, 12)  # noqa: DTZ001
IN_BERLIN = datetime(2026, 7, 1, 10, tzinfo=UTC)


def opened(folder: Path, **settings: Any) -> Store:
    store = ab.connect(folder / "river", settings=ab.Settings(**settings), create=True)
    if store.streams.find("s/a") is None:
        store.scopes.create("s")
        store.streams.create("s/a", schema=COLUMNS, time="at")
        store.streams.create("s/raw")
    return store


def bodies(store: Store, stream: str = "s/a") -> list[Any]:
    with store.reader(stream) as reader:
        return [event.body for event in reader]


WRONG: dict[str, Any] = {
    "uint64 in int64": pa.table({"n": pa.array([(1 << 64) - 1], pa.uint64())}),
    "int64 in double": pa.table({"x": [(1 << 53) + 1]}),
    "double in decimal": pa.table({"price": [0.129]}),
    "decimal in double": pa.table({"x": [Decimal("12345678901234567890.12")]}),
    "text in double": pa.table({"x": ["9007199254740993"]}),
    "ns of pandas": pd.DataFrame({"at": [pd.Timestamp("2026-01-01T00:00:00.123456789Z")]}),
    "ns of polars": pl.DataFrame({"at": pl.Series([1_767_225_600_123_456_789], dtype=pl.Datetime("ns", "UTC"))}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_batch_that_would_be_changed_is_refused_by_writers_and_transactions(tmp_path: Path, what: str) -> None:
    with opened(tmp_path) as store:
        with store.writer("s/a") as writer, pytest.raises(SchemaMismatch):
            writer.write_batch(WRONG[what])
        with store.transaction() as transaction, pytest.raises(SchemaMismatch):
            transaction.writer("s/a").write_batch(WRONG[what])
        assert bodies(store) == []


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("at", IN_BERLIN.date(), "expected a datetime, got a date"),
        ("clock", IN_BERLIN, "expected a time of day, got a datetime"),
        ("day", IN_BERLIN, "expected a date, got a datetime: pass its date()"),
    ],
)
def test_a_time_of_another_python_type_is_refused_in_words_of_python(
    tmp_path: Path, column: str, value: Any, why: str
) -> None:
    schema = pa.schema([("at", TIME_TYPE), ("clock", pa.time64("us")), ("day", pa.date32())])
    with opened(tmp_path) as store:
        store.streams.create("s/times", schema=schema)
        with store.writer("s/times") as writer, pytest.raises(SchemaMismatch, match=why):
            writer.write({column: value})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_times_without_a_zone_are_of_the_zone_of_the_settings_everywhere(tmp_path: Path, zone: str) -> None:
    wanted = IN_BERLIN if zone == "Europe/Berlin" else NAIVE.replace(tzinfo=UTC)
    with opened(tmp_path, time_zone=zone) as store:
        with store.writer("s/a") as writer:
            writer.write({"at": NAIVE})
            writer.write_batch(pd.DataFrame({"at": [NAIVE]}))
        with store.transaction() as transaction:
            transaction.writer("s/a").write({"at": NAIVE})
            transaction.writer("s/a").write_batch(pa.table({"at": [NAIVE]}))
        assert [body["at"] for body in bodies(store)] == [wanted] * 4
        with store.writer("s/raw") as raw:
            raw.write(b"x", time="2026-07-01T12:00:00").result()
            raw.note_time(NAIVE)
            mark = store.watermarks.get("s/raw")
            assert mark is not None and mark.time_us == int(wanted.timestamp() * 1e6)
        with store.reader("s/raw") as reader:
            assert [event.time for event in reader] == [wanted]
        # Places are times too.
        for place in (NAIVE, "2026-07-01T12:00:00"):
            assert store.cuts.at("s/a", place, by="event") == store.cuts.head("s/a")
            with store.reader("s/a", start=place, by="event") as reader:
                assert len(list(reader)) == 4
        with store.reader("s/a", between=(NAIVE, "2026-07-01T12:00:00.000001")) as reader:
            assert len(list(reader)) == 4


def test_times_without_a_zone_are_refused_where_the_settings_say_so(tmp_path: Path) -> None:
    with opened(tmp_path, time_zone="refuse") as store:
        with store.writer("s/a") as writer:
            for write in (
                lambda: writer.write({"at": NAIVE}),
                lambda: writer.write_batch(pa.table({"at": [NAIVE]})),
                lambda: store.cuts.at("s/a", NAIVE),
            ):
                with pytest.raises(InvalidArgument, match="has no zone"):
                    write()
            writer.write({"at": IN_BERLIN})
        assert len(bodies(store)) == 1


def test_digits_beyond_microseconds_are_cut_off_where_the_settings_say_so(tmp_path: Path) -> None:
    with opened(tmp_path, truncate_times=True) as store:
        with store.writer("s/a") as writer:
            writer.write_batch(WRONG["ns of pandas"])
            writer.write({"at": pd.Timestamp("2026-01-01T00:00:00.123456789Z")})
        assert [body["at"].microsecond for body in bodies(store)] == [123_456, 123_456]


def test_attached_files_whose_times_would_be_cut_are_refused_unless_that_is_asked_for(tmp_path: Path) -> None:
    at = pa.array([1_767_225_600_123_456_000, 1_767_225_600_123_456_789, None], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"at": at, "n": [1, 2, 3]}), tmp_path / "fine.parquet")
    pq.write_table(pa.table({"at": at.slice(0, 1)}), tmp_path / "whole.parquet")
    pq.write_table(pa.table({"at": pa.array([NAIVE], pa.timestamp("us"))}), tmp_path / "naive.parquet")
    with opened(tmp_path) as store:
        for time in ("at", None):
            with pytest.raises(SchemaMismatch, match=r"fine\.parquet.*123456789Z has digits beyond µs"):
                store.archives.attach(tmp_path / "fine.parquet", "s/fine", time=time)
        store.archives.attach(tmp_path / "whole.parquet", "s/whole", time="at")
        assert bodies(store, "s/whole")[0]["at"].microsecond == 123_456
    with opened(tmp_path, truncate_times=True, time_zone="Europe/Berlin") as store:
        store.archives.attach(tmp_path / "fine.parquet", "s/fine", time="at")
        assert [body["at"] and body["at"].microsecond for body in bodies(store, "s/fine")] == [123_456, 123_456, None]
        with pytest.raises(SchemaMismatch, match=r"naive\.parquet.*UTC"):
            store.archives.attach(tmp_path / "naive.parquet", "s/naive", time="at")


SECONDS = int(IN_BERLIN.timestamp())


@pytest.mark.parametrize("per_second", [1, 10**3, 10**9])
def test_integers_that_look_like_another_unit_are_refused_unless_they_are_asked_for(
    tmp_path: Path, per_second: int
) -> None:
    odd = SECONDS * per_second
    with opened(tmp_path) as store:
        with store.writer("s/a") as writer, store.writer("s/raw") as raw, store.transaction() as transaction:
            for call in (
                lambda: raw.write(b"x", time=odd),
                lambda: raw.note_time(odd),
                lambda: writer.write({"at": odd}),
                lambda: writer.write_batch(pa.table({"at": [5, odd, SECONDS * 10**6]})),  # neither least nor greatest
                lambda: writer.write_batch(pd.DataFrame({"at": [odd]})),
                lambda: transaction.writer("s/raw").write(b"x", time=odd),
                lambda: transaction.writer("s/a").write({"at": odd}),
                lambda: store.cuts.at("s/a", odd),
                lambda: store.streams.replace("s/a", between=(odd, odd + 1), with_=None),
                lambda: store.streams.misplaced("s/a", odd),
                lambda: store.reader("s/a", between=(odd, odd + 1)),
            ):
                with pytest.raises(InvalidArgument, match=r"not a plausible time in µs since 1970.*it looks like"):
                    call()  # type: ignore[no-untyped-call]
            writer.write({"at": SECONDS * 10**6}).result()
        assert [len(bodies(store, name)) for name in ("s/a", "s/raw")] == [1, 0]
    with opened(tmp_path, implausible_times=True) as store:
        with store.writer("s/a") as writer:
            writer.write({"at": odd})
            writer.write_batch(pa.table({"at": [odd]}))
        assert store.cuts.distance("s/a").events == 3


NESTED = pa.schema(
    [
        ("list", pa.list_(TIME_TYPE)),
        ("struct", pa.struct([("n", pa.int64()), ("at", TIME_TYPE)])),
        ("map", pa.map_(pa.string(), TIME_TYPE)),
        ("deep", pa.list_(pa.struct([("times", pa.list_(TIME_TYPE))]))),
        ("local", pa.list_(pa.timestamp("us"))),  # without a zone
        ("plain", pa.timestamp("us")),
        ("numbers", pa.list_(pa.int64())),  # not declared as times
    ]
)
AS_INTEGERS: dict[str, tuple[pa.DataType, Any]] = {
    "list": (pa.list_(pa.int64()), lambda n: [None, 5, n]),
    "struct": (pa.struct([("n", pa.int64()), ("at", pa.int64())]), lambda n: {"n": n, "at": n}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [("a", 5), ("b", n)]),
    "deep": (pa.list_(pa.struct([("times", pa.list_(pa.int64()))])), lambda n: [None, {"times": [5]}, {"times": [n]}]),
    "local": (pa.large_list(pa.int64()), lambda n: [n]),
    "plain": (pa.int64(), lambda n: n),
}


@pytest.mark.parametrize("column", AS_INTEGERS)
def test_integers_of_another_unit_inside_lists_maps_and_structs_are_refused_too(tmp_path: Path, column: str) -> None:
    kind, value = AS_INTEGERS[column]
    odd, fine = SECONDS, SECONDS * 10**6

    def batch(*numbers: int) -> pa.Table:
        rows = pa.array([None, *map(value, numbers)], kind)
        return pa.table({column: pa.concat_arrays([rows, rows])}).slice(1)  # a view with an offset

    def nested(**settings: Any) -> Store:
        store = ab.connect(tmp_path / "river", settings=ab.Settings(**settings), create=True)
        if store.streams.find("s/nested") is None:
            store.scopes.create("s")
            store.streams.create("s/nested", schema=NESTED)
        return store

    with nested() as store:
        with store.writer("s/nested") as writer, store.transaction() as transaction:
            for call in (
                lambda: writer.write_batch(batch(fine, odd)),
                lambda: writer.write({column: value(odd)}),
                lambda: transaction.writer("s/nested").write_batch(batch(odd)),
                lambda: transaction.writer("s/nested").write({column: value(odd)}),
            ):
                with pytest.raises(SchemaMismatch, match=rf"{column}.*not a plausible time in µs since 1970.*seconds"):
                    call()  # type: ignore[no-untyped-call]
            writer.write({column: value(fine), "numbers": [odd]}).result()
            writer.write_batch(batch(fine)).result()
        assert len(bodies(store, "s/nested")) == 4
    with nested(implausible_times=True) as store:
        with store.writer("s/nested") as writer:
            writer.write({column: value(odd)}).result()
            writer.write_batch(batch(odd)).result()
        assert len(bodies(store, "s/nested")) == 8


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nested_lists_and_maps_of_times_may_be_null(zone: str | None) -> None:
    when = pa.timestamp("us", zone)
    columns = pa.schema(
        [
            ("lists", pa.list_(pa.list_(when))),
            ("maps", pa.list_(pa.map_(pa.string(), when))),
            ("items", pa.map_(pa.string(), pa.list_(when))),
            ("fields", pa.struct([("list", pa.list_(when)), ("map", pa.map_(pa.string(), when))])),
        ]
    )
    row = {"lists": [None, [None]], "maps": [None], "items": {"a": None}, "fields": {"list": None, "map": None}}
    with ab.connect("memory://") as store:
        store.scopes.create("s")
        store.streams.create("s/nested", schema=columns)
        with store.writer("s/nested") as writer:
            writer.write(row).result()
        assert bodies(store, "s/nested") == [row | {"items": [("a", None)], "maps": [None]}]
