"""Everything that reads a segment plans through one reader: it goes on when a plan has become stale, and says so when
events are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import anabranch as ab
from anabranch import errors, limits
from anabranch.log.lease import HeldLease
from anabranch.log.misplaced import count_misplaced
from anabranch.log.read import LogReader, SegmentRows, Selection
from anabranch.log.rewrite import RewrittenFile
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_index import append_time
from anabranch.log.time_scan import TimeScan
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.testing.clock import ManualClock
from tests.store.reading.kit import SCHEMA, T0, create, squeeze, write

SEGMENT = ab.SegmentId(0, 0)
ALL = Selection(SCHEMA, rows_max=20)
EXTENTS = 20  # of five events each


@pytest.fixture
def store() -> Iterator[ab.Store]:
    clock = ManualClock()
    runtime = Runtime(clock=clock, catalog_clock=clock, settings=Settings(inline_bytes_max=0))
    with ab.connect("memory://", runtime=runtime) as opened:
        opened.scopes.create("s")
        yield opened


@pytest.fixture
def view(store: ab.Store) -> StreamView:
    create(store)
    write(store, 0, 100, size=100 // EXTENTS)
    return store.streams.view("s/a")


def logs_of(store: ab.Store) -> LogReader:
    return LogReader(store.catalog, store.blobs, store.runtime)


def numbers_of(rows: Iterator[SegmentRows]) -> list[int]:
    return [n for each in rows for n in each.batch.column("n").to_pylist()]


def truncate(store: ab.Store, offset: int) -> None:
    store.streams.truncate("s/a", ab.StreamCut.of(store.streams.get("s/a").id, {SEGMENT: offset}))


def collect(store: ab.Store) -> None:
    for _ in range(3):
        store.runtime.clock.pass_time(1_000_000)  # type: ignore[attr-defined]
        store.collect(horizon_us=0)


def test_rows_of_a_time_range_end_at_the_last_offset_also_where_the_rest_is_pruned(
    store: ab.Store, view: StreamView
) -> None:
    chosen = Selection(SCHEMA, rows_max=20, time="at", between=(T0 + 10, T0 + 15))
    rows = list(SegmentReader(logs_of(store), view, SEGMENT).rows(0, 90, chosen))
    assert numbers_of(iter(rows)) == list(range(10, 15))
    assert (rows[-1].stop, rows[-1].batch.num_rows, rows[-1].batch.schema) == (90, 0, SCHEMA)


@pytest.mark.parametrize("page", [1, 3, limits.EXTENTS_PER_PLAN_MAX])
def test_a_stale_plan_is_made_again_where_the_read_was(store: ab.Store, view: StreamView, page: int) -> None:
    source = SegmentReader(logs_of(store), view, SEGMENT, extents_max=page)
    last = source.plan(99, 100).extents[0].extent.key
    assert last is not None
    rows = source.rows(0, 100, ALL)
    first = next(rows)
    squeeze(store)
    collect(store)
    assert store.blobs.size(last) is None
    assert [*numbers_of(iter([first])), *numbers_of(rows)] == list(range(100))


def test_a_lost_blob_is_an_error_behind_the_rows_before_it(store: ab.Store, view: StreamView) -> None:
    logs, seen = logs_of(store), list[int]()
    extents = SegmentReader(logs, view, SEGMENT).plan(0, 100).extents
    lost = extents[7].extent.key
    assert lost is not None
    store.blobs.delete(lost)
    with pytest.raises(errors.BlobMissing, match=lost):
        seen.extend(rows.stop for rows in SegmentReader(logs, view, SEGMENT).rows(0, 100, ALL))
    assert seen == [20, 35]


def _rows(store: ab.Store, view: StreamView) -> object:
    return list(SegmentReader(logs_of(store), view, SEGMENT).rows(0, 100, ALL))


def _pages(store: ab.Store, view: StreamView) -> object:
    return list(SegmentReader(logs_of(store), view, SEGMENT).pages(0, 100))


def _append_time(store: ab.Store, view: StreamView) -> object:
    return append_time(logs_of(store), view, SEGMENT, 0)


def _rewrite(store: ab.Store, view: StreamView) -> object:
    with HeldLease(store.catalog, store.runtime, "test", "s/a") as hold:
        return RewrittenFile(store.catalog, logs_of(store), store.blobs, store.runtime, view, SEGMENT, [(3, 8)], hold)


WAYS = [_rows, _pages, _append_time, _rewrite]


@pytest.mark.parametrize("read", WAYS, ids=[read.__name__ for read in WAYS])
def test_events_that_were_truncated_since_the_view_was_loaded_are_an_error_of_their_own(
    store: ab.Store, view: StreamView, read: Callable[[ab.Store, StreamView], object]
) -> None:
    truncate(store, 40)
    collect(store)
    with pytest.raises(errors.Truncated) as error:
        read(store, view)
    assert error.value.head == {"0.0": 40}


def test_a_time_scan_passes_over_events_that_were_truncated_meanwhile(store: ab.Store, view: StreamView) -> None:
    scan = TimeScan(logs_of(store), T0 + 3, T0 + 48, by_event_time=True)
    truncate(store, 42)
    collect(store)
    scan.advance(view)
    assert scan.runs(store.streams.view("s/a"), SEGMENT) == [(42, 48)]


def test_misplaced_events_that_were_truncated_meanwhile_are_not_counted(store: ab.Store, view: StreamView) -> None:
    cut = ab.StreamCut.of(view.info.id, {SEGMENT: 90})
    before = count_misplaced(logs_of(store), view, Micros(T0 + 30), cut, by_event_time=True)
    assert (before.before_cut, before.after_cut) == (60, 0)
    truncate(store, 42)
    collect(store)
    after = count_misplaced(logs_of(store), view, Micros(T0 + 30), cut, by_event_time=True)
    assert (after.before_cut, after.after_cut) == (48, 0)
