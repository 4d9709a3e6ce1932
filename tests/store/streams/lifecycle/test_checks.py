"""Checks on the events of a stream: kept with it, and enforced whichever way events come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidSql, SchemaMismatch, StreamExists
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, SCHEMA, bodies_of, store_at
from tests.waiting import until

_CHECKS = {"range": "n BETWEEN 0 AND 9", "device": "device IN ('a', 'b')"}
_BROKEN = r"row 1 breaks the check 'range' \(n BETWEEN 0 AND 9\): n = 10"


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        made.streams.create("s/x", schema=SCHEMA, key="device", time="at", checks=_CHECKS)
        yield made


def _numbers(store: Store, stream: str = "s/x") -> list[int]:
    return sorted(row["n"] for row in bodies_of(store, stream))


def test_single_events_fail_alone(store: Store) -> None:
    with store.writer("s/x") as writer:
        acks = [writer.write({"device": "a", "n": n}) for n in (1, 10, 2)]
        with pytest.raises(SchemaMismatch, match="breaks the check 'range'") as error:
            acks[1].result()
        assert error.value.column == "n"
        acks[2].result()
        with pytest.raises(SchemaMismatch, match="breaks the check 'device'"):
            writer.write({"device": "c", "n": 1}).result()
        writer.write({"device": None, "n": None}).result()  # as in SQL, null passes
    assert [row["n"] for row in bodies_of(store, "s/x") if row["n"] is not None] == [1, 2]


def test_batches_and_transactions_are_refused_as_a_whole(store: Store) -> None:
    rows = pa.table({"device": ["a", "b"], "n": pa.array([1, 10], pa.int32())})
    with store.writer("s/x") as writer:
        with pytest.raises(SchemaMismatch, match=_BROKEN):
            writer.write_batch(rows)
        writer.write_batch(rows.slice(0, 1)).result()
    with store.transaction() as transaction:
        inner = transaction.writer("s/x")
        with pytest.raises(SchemaMismatch, match=_BROKEN):
            inner.write_batch(rows)
        inner.write_batch(rows.slice(0, 1))
    assert _numbers(store) == [1, 1]


def test_a_date_that_python_can_not_hold_breaks_a_check(store: Store) -> None:
    store.streams.create("s/days", schema={"day": pa.date32()}, checks={"early": "day < DATE '2100-01-01'"})
    with store.writer("s/days") as writer, pytest.raises(SchemaMismatch, match="day = '29349-01-26'"):
        writer.write_batch(pa.table({"day": pa.array([10**7], pa.int32()).cast(pa.date32())}))


def test_what_a_producer_appends_is_refused_as_a_whole(store: Store) -> None:
    rows = pa.table({"device": ["a", "b"], "n": pa.array([1, 10], pa.int32())})
    with store.producer("s/x", "p") as producer:
        with pytest.raises(SchemaMismatch, match=_BROKEN):
            producer.append(rows)
        producer.append(rows.slice(0, 1))
    assert _numbers(store) == [1]


def test_copies_and_renamed_streams_keep_them_and_evolved_ones(store: Store) -> None:
    store.streams.copy("s/x", "s/y")
    store.streams.rename("s/y", "s/z")
    store.streams.add_columns("s/z", {"more": pa.int64()})
    store.streams.stitch(["s/z"], into="s/w")
    for name in ("s/x", "s/w"):
        checks = store.streams.get(name).schema.checks
        assert {each.name: each.condition for each in checks} == _CHECKS
    with pytest.raises(SchemaMismatch, match="'range'"), store.writer("s/w") as writer:
        writer.write({"device": "a", "n": 10, "more": 1}).result()
    store.streams.create("s/x", schema=SCHEMA, key="device", time="at", exist_ok=True)
    store.streams.create("s/x", schema=SCHEMA, key="device", time="at", checks=_CHECKS, exist_ok=True)
    with pytest.raises(StreamExists):
        store.streams.create("s/x", schema=SCHEMA, key="device", time="at", checks={"range": "n > 0"}, exist_ok=True)


def test_what_can_not_be_used_changes_nothing(store: Store) -> None:
    version = store.streams.get("s/x").version
    for check, condition, error in (
        ("c", "missing > 0", InvalidSql),
        ("c", "n +", InvalidSql),
        ("a name", "n > 0", InvalidArgument),
        ("c", "n > 0" + " " * limits.CHECK_CHARS_MAX + "OR n < 0", InvalidArgument),
    ):
        with pytest.raises(error):
            store.streams.add_check("s/x", check, condition)
    with pytest.raises(InvalidArgument, match="no check 'c'; its checks: device, range"):
        store.streams.remove_check("s/x", "c")
    with pytest.raises(InvalidSql, match="check 'c': unknown column"):
        store.streams.create("s/new", schema=SCHEMA, checks={"c": "missing > 0"})
    store.streams.create("s/raw")
    with pytest.raises(SchemaMismatch, match="no columns to check"):
        store.streams.add_check("s/raw", "c", "payload IS NOT NULL")
    assert store.streams.get("s/x").version == version
    assert not store.streams.exists("s/new")


def test_an_open_writer_takes_up_a_changed_check_within_a_second(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store, ab.connect(tmp_path / "river") as other:
        store.scopes.create("s")
        store.streams.create("s/x", schema=SCHEMA, key="device")
        with store.writer("s/x") as writer:
            writer.write({"device": "a", "n": 10}).result()
            other.streams.add_check("s/x", "range", "n < 10")

            def refused() -> bool:
                try:
                    writer.write({"device": "a", "n": 10}).result()
                except SchemaMismatch:
                    return True
                return False

            until(refused, 10 * limits.SCHEMA_FRESH_S)
            other.streams.remove_check("s/x", "range")
            writer.write_batch(pa.table({"device": ["a"], "n": pa.array([11], pa.int32())}), atomic=True).result()
            with pytest.raises(SchemaMismatch):  # the refused event
                writer.flush()


def test_archives_and_backups_keep_them(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/x", schema=SCHEMA, key="device", checks=_CHECKS)
        with store.writer("s/x") as writer:
            writer.write({"device": "a", "n": 1})
        store.compact()
        store.archives.create("s/x", tmp_path / "archive")
        store.archives.import_(tmp_path / "archive", as_="s/again")
        store.backup(tmp_path / "backup")
        assert _numbers(store, "s/again") == [1]
        assert {each.name: each.condition for each in store.streams.get("s/again").schema.checks} == _CHECKS
        assert not list(store.check())
