"""Checks that send events to a stream of violations: with the others, in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument, SchemaMismatch, StreamExists
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, SCHEMA, bodies_of, store_at


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as made:
        made.streams.create("s/x", schema=SCHEMA, key="device", time="at")
        made.streams.add_check("s/x", "range", "n BETWEEN 0 AND 9", violations="s/rejected")
        made.streams.add_check("s/x", "device", "device IN ('a', 'b')")
        made.streams.add_check("s/x", "even", "n % 2 = 0", violations="s/odd")
        yield made


def rows(*numbers: int | None, device: str = "a") -> pa.Table:
    return pa.table({"device": [device] * len(numbers), "n": pa.array(numbers, pa.int32())})


def found(store: Store) -> dict[str, list[Any]]:
    kept = [row["n"] for row in bodies_of(store, "s/x")]
    sides = {name: [(row["n"], row["_check"]) for row in bodies_of(store, f"s/{name}")] for name in ("rejected", "odd")}
    return {"x": kept, **sides}


EXPECTED = {"x": [2, None, 4], "rejected": [(-2, "range")], "odd": [(11, "even"), (3, "even")]}


def test_a_write_divides_what_it_writes_in_one_transaction(store: Store) -> None:
    report = store.write("s/x", rows(2, 11, None, 3, -2, 4))
    # The first check by name that is false decides: 'even' before 'range'.
    assert found(store) == EXPECTED
    assert (report.events, report.diverted, report.rejected) == (6, 3, 0)


def test_a_row_that_a_check_refuses_refuses_all_or_is_skipped(store: Store) -> None:
    both = pa.concat_tables([rows(2, 11), rows(1, device="c"), rows(4)])
    with pytest.raises(InvalidArgument, match="breaks the check 'device'"):
        store.write("s/x", both, atomic=True)
    assert found(store) == {"x": [], "rejected": [], "odd": []}
    report = store.write("s/x", both, skip_errors=1)
    assert (report.events, report.diverted, report.rejected) == (3, 1, 1)
    assert found(store) == {"x": [2, 4], "rejected": [], "odd": [(11, "even")]}
    report = store.write("s/x", rows(6, 13), atomic=True)
    assert (report.events, report.diverted) == (2, 1)


def test_a_transaction_divides_batches_and_single_events_and_commits_all_or_nothing(store: Store) -> None:
    with store.transaction() as transaction:
        writer = transaction.writer("s/x")
        writer.write_batch(rows(2, 11, None))
        for number in (3, -2, 4):
            writer.write({"device": "a", "n": number})
        with pytest.raises(SchemaMismatch, match="breaks the check 'device'"):
            writer.write_batch(pa.concat_tables([rows(5), rows(1, device="c")]))
        assert found(store) == {"x": [], "rejected": [], "odd": []}
    assert found(store) == EXPECTED
    transaction.commit()  # again: once
    assert found(store) == EXPECTED
    aborted = store.transaction()
    aborted.writer("s/x").write_batch(rows(7, 8))
    aborted.abort()
    assert found(store) == EXPECTED


def test_a_flush_that_is_repeated_under_its_request_counts_once(store: Store) -> None:
    transaction = store.transaction()
    transaction.writer("s/x").write_batch(rows(2, 11))
    transaction.flush(request="first")
    resumed = store.transaction(transaction.id)
    resumed.writer("s/x").write_batch(rows(2, 11))
    resumed.flush(request="first")
    resumed.commit()
    assert found(store) == {"x": [2], "rejected": [], "odd": [(11, "even")]}


def test_a_full_side_stream_lets_nothing_of_a_batch_in(store: Store) -> None:
    store.streams.add_check("s/x", "range", "n BETWEEN 0 AND 9", violations="s/rejected")
    store.streams.seal("s/odd")
    with pytest.raises(Exception, match="odd"):
        store.write("s/x", rows(2, 3))
    assert found(store) == {"x": [], "rejected": [], "odd": []}


def test_a_writer_refuses_the_event_and_says_how_it_is_diverted(store: Store) -> None:
    with store.writer("s/x") as writer:
        with pytest.raises(SchemaMismatch, match=r"'even' .*it goes to 's/odd' if it is written by a transaction"):
            writer.write({"device": "a", "n": 3}).result()
        writer.write({"device": "a", "n": 4}).result()
    assert found(store) == {"x": [4], "rejected": [], "odd": []}


def test_columns_that_are_added_later_are_left_out_of_violations(store: Store) -> None:
    store.streams.add_columns("s/x", {"more": pa.int64()})
    store.write("s/x", rows(2, 3).append_column("more", pa.array([1, 2])))
    assert found(store) == {"x": [2], "rejected": [], "odd": [(3, "even")]}


def test_the_stream_of_violations_has_to_fit(store: Store) -> None:
    store.streams.create("s/other", schema=SCHEMA)
    with pytest.raises(StreamExists):
        store.streams.add_check("s/x", "more", "n < 3", violations="s/other")
    with pytest.raises(InvalidArgument, match="has checks itself"):
        store.streams.add_check("s/x", "more", "n < 3", violations="s/x")
    checks = {each.name: each.violations for each in store.streams.get("s/x").schema.checks}
    assert checks == {"range": "s/rejected", "device": None, "even": "s/odd"}
    store.streams.add_check("s/x", "even", "n % 2 = 0")
    store.streams.remove_check("s/x", "range")
    checks = {each.name: each.violations for each in store.streams.get("s/x").schema.checks}
    assert checks == {"device": None, "even": None}
