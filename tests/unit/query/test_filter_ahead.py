"""What filters a scan ahead of its consumer keeps the order and its bounds, and leaves no task behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.errors import Closed, CorruptBlob
from anabranch.query.filter_ahead import FilterAhead
from anabranch.runtime.tasks import ThreadTasks
from tests.waiting import PATIENCE_S, until, until_ended


class Source:
    """Batches of one row, which is their number; counts those that were taken."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.taken = 0
        self._count = count
        self._error = error

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._count):
            self.taken += 1
            yield pa.record_batch({"n": [number]})
        if self._error is not None:
            raise self._error


def number_of(batch: pa.RecordBatch) -> int:
    return int(batch.column(0)[0].as_py())


def even(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
    return [batch] if number_of(batch) % 2 == 0 else []


def filters() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "anabranch-filter"]


def test_what_is_kept_comes_in_order_and_the_tasks_end() -> None:
    ahead = FilterAhead(ThreadTasks(), iter(Source(500)), even)
    assert filters() == []
    assert [number_of(batch) for batches in ahead for batch in batches] == list(range(0, 500, 2))
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()
    assert filters() == []


def test_the_order_holds_where_an_earlier_batch_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    later = threading.Event()

    def keep(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        number = number_of(batch)
        if number == 1:
            later.set()
        if number == 0:
            assert later.wait(PATIENCE_S)
        return [batch]

    ahead = FilterAhead(ThreadTasks(), iter(Source(3)), keep)
    assert [number_of(batch) for batches in ahead for batch in batches] == [0, 1, 2]
    ahead.close()


def test_no_more_batches_are_taken_than_the_limit_allows() -> None:
    source = Source(1_000)
    ahead = FilterAhead(ThreadTasks(), iter(source), even)
    for requested in range(1, 20):
        next(ahead)
        full = requested + limits.QUERY_BATCHES_AHEAD + 1
        until(lambda full=full: source.taken == full)  # type: ignore[misc]
    ahead.close()
    assert source.taken == full


def test_no_more_bytes_are_taken_than_the_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_AHEAD_BYTES", 20)  # of eight each
    source = Source(1_000)
    ahead = FilterAhead(ThreadTasks(), iter(source), even)
    for requested in range(1, 20):
        next(ahead)
        until(lambda full=requested + 3: source.taken == full)  # type: ignore[misc]
    ahead.close()
    assert source.taken == 19 + 3


def test_a_batch_that_is_larger_than_the_limit_is_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_AHEAD_BYTES", 1)
    ahead = FilterAhead(ThreadTasks(), iter(Source(30)), even)
    assert [number_of(batch) for batches in ahead for batch in batches] == list(range(0, 30, 2))
    ahead.close()


def test_an_error_is_raised_in_the_place_of_its_batch() -> None:
    ahead = FilterAhead(ThreadTasks(), iter(Source(5, CorruptBlob("key", "a reason"))), even)
    seen: list[int] = []
    with pytest.raises(CorruptBlob):
        seen.extend(number_of(batch) for batches in ahead for batch in batches)
    assert seen == [0, 2, 4]
    with pytest.raises(CorruptBlob):  # asked again, it is not taken for the end
        next(ahead)
    ahead.close()


def test_an_error_of_the_filter_is_raised_and_no_later_batch_is_returned() -> None:
    def keep(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        if number_of(batch) == 7:
            raise ZeroDivisionError
        return [batch]

    ahead = FilterAhead(ThreadTasks(), iter(Source(100)), keep)
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(number_of(batch) for batches in ahead for batch in batches)
    assert seen == list(range(7))
    ahead.close()


def test_closing_waits_for_the_batch_at_hand_and_ends_a_waiting_consumer() -> None:
    begun, go, outcomes = threading.Event(), threading.Event(), list[str]()

    def keep(batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        begun.set()
        assert go.wait(PATIENCE_S)
        return [batch]

    ahead = FilterAhead(ThreadTasks(), iter(Source(100)), keep)

    def consume() -> None:
        try:
            next(ahead)
        except Closed:
            outcomes.append("closed")

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=ahead.close, daemon=True)
    closing.start()
    until_ended(consumer)
    assert outcomes == ["closed"]
    assert closing.is_alive()
    go.set()
    until_ended(closing)
    assert filters() == []
    ahead.close()
