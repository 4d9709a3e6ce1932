"""Readers that are held to a rate, embedded and by a broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.reading.reader import Reader
from anabranch.reading.row_source import ReaderOptions
from anabranch.remote.broker_rows import BrokerRows
from anabranch.runtime.ports import Runtime
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.remote.servers import served
from tests.waiting import until, until_ended

EVENTS = 1_000
ReaderOf = Callable[..., Any]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a", scaling=2)
        with made.writer("s/a") as writer:
            for i in range(EVENTS):
                writer.write(b"%d" % i, key=f"k{i % 7}")
        yield made


@pytest.fixture(params=["embedded", "remote"])
def reader_of(request: pytest.FixtureRequest, store: Store, clock: ManualClock) -> Iterator[ReaderOf]:
    """Opens readers whose clock is the test's."""
    if request.param == "embedded":
        inner = store.runtime
        store.runtime = Runtime(clock=clock, settings=inner.settings)
        yield lambda **options: store.reader("s/a", **options)
        store.runtime = inner
        return
    with served(store) as connection:
        runtime = Runtime(clock=clock)

        def opened(*, rate: ab.Rate | None = None, **options: Any) -> Reader:
            return Reader(BrokerRows(connection, runtime, "s/a", ReaderOptions(**options)), runtime, rate=rate)

        yield opened


def test_a_reader_hands_out_what_its_rate_allows(reader_of: ReaderOf, clock: ManualClock) -> None:
    with reader_of(follow=True, rate=ab.Rate(events_per_s=100)) as reader:
        found = [_next(reader)]
        assert reader.read() is None
        assert not reader.at_end
        while sum(each.num_rows for each in found) < EVENTS:
            clock.pass_time(100_000)
            found.append(_next(reader))
        rows = sum(each.num_rows for each in found)
        assert rows == EVENTS
        assert max(each.num_rows for each in found) == 10
        assert (
            len({(o, s) for b in found for o, s in zip(*map(b.column, ("_offset", "_segment")), strict=True)}) == rows
        )


def test_a_reader_with_a_rate_continues_at_its_position(reader_of: ReaderOf, clock: ManualClock) -> None:
    with reader_of(follow=True, rate=ab.Rate(events_per_s=50)) as reader:
        rows = _next(reader).num_rows
        clock.pass_time(1_000_000)
        rows += _next(reader).num_rows
        position = reader.position
    with reader_of(start=position) as rest:
        assert rest.to_arrow().num_rows == EVENTS - rows


def test_a_rate_is_changed_while_a_reader_waits(reader_of: ReaderOf) -> None:
    with reader_of(rate=ab.Rate(events_per_s=0.001)) as reader:
        found: list[int] = []

        def read() -> None:
            found.extend(batch.num_rows for batch in reader.batches())

        thread = threading.Thread(target=read)
        thread.start()
        until(lambda: found)
        assert found == [1]
        reader.rate = None
        until_ended(thread)
        assert sum(found) == EVENTS
        assert reader.rate is None


def test_a_coroutine_waits_for_the_rate_and_is_cancelled_in_it(reader_of: ReaderOf) -> None:
    async def main() -> None:
        async with reader_of(rate=ab.Rate(bytes_per_s=1)) as reader:
            events = aiter(reader)
            await anext(events)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.05)
            reader.rate = ab.Rate(events_per_s=1e9)
            left = [event async for event in reader]
            assert len(left) == EVENTS - 1

    asyncio.run(main())


def test_closing_a_reader_ends_its_wait_for_the_rate(reader_of: ReaderOf) -> None:
    reader = reader_of(rate=ab.Rate(events_per_s=0.001))
    seen: list[ab.Event] = []
    thread = threading.Thread(target=lambda: seen.extend(reader))
    thread.start()
    until(lambda: reader.position.offsets != reader_of().position.offsets)
    reader.close()
    until_ended(thread)
    assert len(seen) == 1


def test_what_is_no_rate_is_refused(reader_of: ReaderOf) -> None:
    with reader_of() as reader, pytest.raises(InvalidArgument, match="expected a Rate or None"):
        reader.rate = 5


def _next(reader: Any) -> pa.RecordBatch:
    found: list[pa.RecordBatch] = []

    def read() -> bool:
        batch = reader.read()
        found.extend([] if batch is None else [batch])
        return bool(found)

    until(read)
    return found[0]
