"""`Store.write`: a table or a stream of batches in one call, with what it may create, add and skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument, SchemaMismatch, StreamExists, StreamNotFound, TooLarge
from anabranch.store import Store
from anabranch.store.write import RejectedRow
from tests.store.helpers import bodies_of, sound, store_at

ROWS = pa.table({"device": ["a", "b"], "n": [1, 2]})
BAD = pa.table({"device": ["a", "b", "c", "d"], "n": ["1", "x", "3", "y"]})


@pytest.fixture(params=["memory", "sqlite", "postgres+memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as opened:
        opened.streams.create("s/a", schema=ROWS, key="device")
        yield opened
        assert sound(opened)


def scopes(store: Store) -> list[str]:
    return [scope.name for scope in store.scopes.list()]


def test_a_stream_and_its_scope_are_created_only_if_asked(store: Store) -> None:
    with pytest.raises(StreamNotFound, match="did you mean 's/a'"):
        store.write("s/aa", ROWS)
    report = store.write("new/a", ROWS, create=True, key="device", segments=2)
    assert (report.events, report.rejected, report.created, report.added) == (2, 0, True, ())
    assert len(store.streams.view("new/a").current) == 2
    assert store.streams.get("new/a").schema.key == "device"
    again = store.write("new/a", pd.DataFrame({"device": ["c"], "n": [3]}), create=True)
    assert (again.events, again.created) == (1, False)
    assert sorted(body["n"] for body in bodies_of(store, "new/a")) == [1, 2, 3]
    with pytest.raises(InvalidArgument, match="the key of stream 'new/a' is 'device', not 'n'"):
        store.write("new/a", ROWS, key="n")


def test_batches_are_written_as_they_come(store: Store) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(5):
            yield pa.record_batch({"device": ["a"], "n": [n]})
            assert store.streams.exists("s/b"), "the first batch has made it"

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    assert store.write("s/b", reader, create=True).events == 5
    assert [body["n"] for body in bodies_of(store, "s/b")] == [0, 1, 2, 3, 4]


def test_columns_are_added_if_asked(store: Store) -> None:
    wider = ROWS.append_column("unit", pa.array(["C", None]))
    with pytest.raises(SchemaMismatch, match="unknown column 'unit'"):
        store.write("s/a", wider)
    with store.writer("s/a") as open_writer:
        report = store.write("s/a", wider, add_columns=True)
        assert (report.events, report.added) == (2, ("unit",))
        open_writer.write({"device": "z", "unit": "F"})
    assert store.write("s/a", wider, add_columns=True).added == ()
    assert store.write("s/a", wider.append_column("x", pa.array([1, 2])), add_columns=True, atomic=True).added == ("x",)
    with pytest.raises(InvalidArgument, match="row 0"):
        store.write("s/a", pa.table({"n": ["bad"], "y": [1]}), add_columns=True)
    assert store.streams.get("s/a").schema.columns.names == ["device", "n", "unit", "x"]


@pytest.mark.parametrize("atomic", [False, True])
def test_rows_that_are_refused_are_skipped_up_to_a_number(store: Store, atomic: bool) -> None:
    with pytest.raises(InvalidArgument, match=r"row 1: column 'n' takes int64"):
        store.write("s/a", BAD, atomic=atomic)
    with pytest.raises(InvalidArgument, match=r"row 3: .*; skip_errors=1 skips no more"):
        store.write("s/a", BAD, atomic=atomic, skip_errors=1)
    assert [body["n"] for body in bodies_of(store, "s/a")] == ([] if atomic else [1, 1, 3])
    rejected: list[RejectedRow] = []
    for most in (2, None):
        report = store.write("s/a", BAD, atomic=atomic, skip_errors=most, on_rejected=rejected.append)
        assert (report.events, report.rejected) == (2, 2)
    assert [(each.row, each.values) for each in rejected] == [
        (1, {"device": "b", "n": "x"}),
        (3, {"device": "d", "n": "y"}),
    ] * 2
    assert "column 'n' takes int64" in rejected[0].reason


def test_a_number_of_errors_to_skip_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="expected skip_errors= as an integer, got 'x'"):
        store.write("s/a", BAD, skip_errors="x")  # type: ignore[arg-type]
    assert bodies_of(store, "s/a") == []


def test_a_rejected_row_may_hold_a_time_that_python_can_not(store: Store) -> None:
    days = pa.array([10**7], pa.int32()).cast(pa.date32())
    rejected: list[RejectedRow] = []
    store.write("s/a", pa.table({"device": days, "n": ["x"]}), skip_errors=1, on_rejected=rejected.append)
    assert [each.values for each in rejected] == [{"device": "29349-01-26", "n": "x"}]


def test_a_failed_first_write_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    long_key = pa.table({"device": ["k" * 70_000], "n": [1]})
    with pytest.raises(InvalidArgument, match="row 0: a routing key"):
        store.write("new/a", long_key, create=True, key="device")
    for wrong in ({"key": "nope"}, {"segments": 0}):
        with pytest.raises(InvalidArgument):
            store.write("new/a", ROWS, create=True, **wrong)  # type: ignore[arg-type]

    def fail(*_: object, **__: object) -> None:
        raise TooLarge("a batch", 2, 1)

    monkeypatch.setattr("anabranch.writing.writer.Writer.write_batch", fail)
    for name in ("new/a", "s/new"):
        with pytest.raises(TooLarge):
            store.write(name, ROWS, create=True)
    assert scopes(store) == ["s"]
    assert [str(info.name) for info in store.streams.list()] == ["s/a"]


def test_a_failed_first_write_takes_nothing_from_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        with store.writer("new/a") as other:
            other.write({"device": "other", "n": 9})
        raise TooLarge("a batch", 2, 1)

    monkeypatch.setattr("anabranch.writing.writer.Writer.write_batch", fail)
    with pytest.raises(TooLarge):
        store.write("new/a", ROWS, create=True)
    assert [body["n"] for body in bodies_of(store, "new/a")] == [9]


def test_data_without_rows_creates_its_stream_and_other_data_is_refused(store: Store) -> None:
    assert store.write("s/empty", ROWS.slice(0, 0), create=True).created
    assert store.write("s/all", ROWS.slice(0, 0), create=True, atomic=True).created
    with pytest.raises(InvalidArgument, match="expected a batch"):
        store.write("s/a", [1, 2])
    with pytest.raises(StreamExists):
        store.streams.create("s/empty")
    with ab.connect("memory://") as empty:
        assert empty.write("s/a", ROWS, create=True).events == 2
