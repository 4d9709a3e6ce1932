"""Collection: garbage goes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch import limits
from anabranch.blobs import keys
from anabranch.catalog.port import Lease
from anabranch.catalog.writing import SqlWriting
from anabranch.errors import StoreBusy, StoreUnavailable
from anabranch.log.checking.check import check
from anabranch.log.lease import HeldLease
from anabranch.log.read import LogReader, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.sizes import segment_bytes
from anabranch.log.upkeep.collect import CollectReport, collect
from anabranch.log.upkeep.compact import compact
from anabranch.model.append import Refusal, Refused
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.stream import Segment, Span
from tests.store.kit import SCHEMA, SECOND, Kit

HOUR = 3600 * SECOND


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    yield made
    # Whatever a test removes, what is left is sound.
    assert list(check(made.catalog, made.blobs, now=made.clock.now())) == []
    made.close()


def run(kit: Kit, **options: Any) -> CollectReport:
    return collect(kit.catalog, kit.blobs, kit.runtime, **options)


def settle(kit: Kit) -> CollectReport:
    """Collect twice, with more than the horizon's age in between and after."""
    kit.clock.pass_time(2 * limits.HORIZON_US)
    run(kit)
    kit.clock.pass_time(2 * limits.HORIZON_US)
    return run(kit)


def fill(kit: Kit, stream: StreamId, commits: int = 4) -> None:
    for _ in range(commits):
        kit.append(stream, [5, 3, 2, 1])
        kit.clock.pass_time(SECOND)


def state(kit: Kit, log: LogId) -> Any:
    with kit.catalog.reading() as snapshot:
        return snapshot.logs([log]).get(log)


def test_nothing_that_a_stream_views_is_ever_removed(kit: Kit) -> None:
    stream = kit.create("iot/sensors", segments=2)
    fill(kit, stream)
    before = {log: kit.read(log) for log in kit.logs(stream)}
    report = settle(kit)
    assert (report.logs, report.extents, report.blobs, report.orphans) == (0, 0, 0, 0)
    assert {log: kit.read(log) for log in before} == before


def test_logs_and_blobs_of_a_deleted_stream_are_collected(kit: Kit) -> None:
    stream = kit.create("iot/sensors", segments=2)
    fill(kit, stream)
    logs = kit.logs(stream)
    kit.drop(stream)
    first = run(kit)
    assert (first.extents, first.logs, first.blobs, first.blobs_waiting) == (8, 0, 0, 4)
    kit.clock.pass_time(limits.HORIZON_US + 4 * SECOND + 1)
    second = run(kit)
    assert (second.logs, second.blobs) == (2, 4)
    assert second.bytes_freed > 0
    assert kit.files() == []
    assert [state(kit, log) for log in logs] == [None, None]


def test_a_copy_keeps_events_truncated_in_the_original(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    before = kit.read(log)
    kit.copy(stream, "iot/copy")
    with kit.catalog.writing() as txn:  # as deleting a stream does
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
    kit.drop(stream)
    settle(kit)
    assert kit.read(log) == before


def truncate(kit: Kit, stream: StreamId, head: int) -> None:
    (segment,) = kit.view(stream).ordered
    (span,) = kit.view(stream).spans[segment.id]
    with kit.catalog.writing() as txn:
        txn.put_segment(stream, replace(segment, head=head))
        txn.drop_spans(stream, segment.id)
        txn.put_span(stream, replace(span, offset=head, start=span.start + head - span.offset))


def test_extents_below_all_spans_are_removed(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    truncate(kit, stream, 12)
    assert run(kit).extents == 2
    assert [extent.start for extent in kit.extents(log)] == [10, 15]
    assert state(kit, log).low_water == 12
    settle(kit)
    assert len(kit.files()) == 2
    assert run(kit).extents == 0


def test_a_truncated_stream_is_trimmed_after_compaction_too(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    compact(kit.catalog, kit.blobs, kit.runtime, force=True)
    fill(kit, stream)
    (log,) = kit.logs(stream)
    truncate(kit, stream, 19)
    assert run(kit).extents == 0
    truncate(kit, stream, 20)
    assert run(kit).extents == 1
    assert kit.extents(log)[0].start == 20


def test_a_sealed_log_is_trimmed_after_its_last_span(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    copied = kit.copy(stream, "iot/beginning")
    (segment,) = kit.view(copied).ordered
    with kit.catalog.writing() as txn:
        txn.put_span(copied, Span(segment.id, 0, log, 0, 7))
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
    kit.drop(stream)
    settle(kit)
    assert [extent.stop for extent in kit.extents(log)] == [5, 10]
    assert state(kit, log).length == 10
    assert state(kit, log).size == kit.extents(log)[-1].size_end
    assert len(kit.files()) == 2


def test_a_log_is_trimmed_below_an_empty_span(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    copied = kit.copy(stream, "iot/beginning")
    with kit.catalog.writing() as txn:
        txn.put_span(copied, Span(SegmentId(0, 0), 0, log, 0, 7))
    truncate(kit, stream, 20)  # at its tail, and sealed there
    with kit.catalog.writing() as txn:
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
        txn.put_span(stream, Span(SegmentId(0, 0), 20, log, 20, 20))
        txn.update_stream(replace(kit.view(stream).info, sealed=True))
    settle(kit)
    assert state(kit, log).length == 10


@pytest.mark.parametrize("page", [3, limits.EXTENTS_PER_PLAN_MAX])
def test_extents_in_holes_are_removed(kit: Kit, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy views the beginning, the stream its end, and more and more of what is between goes."""
    monkeypatch.setattr(limits, "EXTENTS_PER_PLAN_MAX", page)
    stream = kit.create("iot/sensors")
    fill(kit, stream, 20)
    (log,) = kit.logs(stream)
    before, times = kit.read(log).drop_columns(["_appended"]), bounds(kit, log)
    copies = [kit.copy(stream, f"iot/copy-{number}") for number in range(2)]
    for copied, start, stop in zip(copies, (0, 48), (7, 53), strict=True):
        with kit.catalog.writing() as txn:
            txn.put_segment(copied, replace(kit.view(copied).ordered[0], head=start))
            txn.drop_spans(copied, SegmentId(0, 0))
            txn.put_span(copied, Span(SegmentId(0, 0), start, log, start, stop))
    truncate(kit, stream, 87)
    sizes = [measured(kit, each) for each in (*copies, stream)]
    assert run(kit).extents == 7 + 6  # of the 20, those that lie wholly in 7 … 48 and in 53 … 87
    assert run(kit).extents == 0
    settle(kit)
    assert len(kit.files()) == 20 - 7 - 6
    assert [measured(kit, each) for each in (*copies, stream)] == sizes
    for viewer in (*copies, stream):
        (span,) = kit.view(viewer).spans[SegmentId(0, 0)]
        stop = 100 if span.stop is None else span.stop
        assert read_back(kit, viewer, span.start, stop) == before.slice(span.start, stop - span.start)
    compact(kit.catalog, kit.blobs, kit.runtime, force=True)
    assert len(kit.files("history/")) == 1
    assert bounds(kit, log) == times
    kit.drop(copies[1])
    run(kit)
    assert [extent.encoding for extent in kit.extents(log)] == ["parquet", "gone", "parquet"]
    kit.drop(copies[0])
    kit.drop(stream)
    settle(kit)
    assert (kit.files(), state(kit, log)) == ([], None)


def bounds(kit: Kit, log: LogId) -> Any:
    """What a log says of its end and of all times in it."""
    now, extents = state(kit, log), kit.extents(log)
    lows = [extent.events.low for extent in extents if extent.events.low is not None]
    return now.length, now.size, now.event_high, min(lows), extents[0].appended.low, extents[-1].appended.high


def measured(kit: Kit, stream: StreamId) -> int:
    view = kit.view(stream)
    with kit.catalog.reading() as reading:
        return sum(segment_bytes(reading, view, each.id, each.head, view.length(each.id)) for each in view.ordered)


def read_back(kit: Kit, stream: StreamId, start: int, stop: int) -> pa.Table:
    logs = LogReader(kit.catalog, kit.blobs, kit.runtime)
    rows = SegmentReader(logs, kit.view(stream), SegmentId(0, 0)).rows(start, stop, Selection(SCHEMA.columns))
    return pa.Table.from_batches([each.batch for each in rows])


def test_large_logs_are_trimmed_in_bounded_transactions(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXTENTS_PER_PLAN_MAX", 3)
    stream, other = kit.create("iot/sensors"), kit.create("iot/other")
    fill(kit, stream, 10)
    fill(kit, other, 10)
    (log,) = kit.logs(other)
    copied = kit.copy(other, "iot/beginning")
    (segment,) = kit.view(copied).ordered
    with kit.catalog.writing() as txn:
        txn.put_span(copied, Span(segment.id, 0, log, 0, 7))
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
    kit.drop(stream)
    kit.drop(other)
    drop_extents, dropped = SqlWriting.drop_extents, list[int]()

    def counted(self: SqlWriting, log: LogId, stop: int | None = None, **more: Any) -> int:
        dropped.append(drop_extents(self, log, stop, **more))
        return dropped[-1]

    monkeypatch.setattr(SqlWriting, "drop_extents", counted)
    assert run(kit).extents == 10 + 8
    assert sum(dropped) == 10 + 8
    assert max(dropped) == 3


def test_compacted_blobs_wait_for_the_horizon_and_go(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    compact(kit.catalog, kit.blobs, kit.runtime, force=True)
    assert run(kit).blobs_waiting == 4
    assert len(kit.files("commits/")) == 4
    kit.clock.pass_time(limits.HORIZON_US)
    assert run(kit).blobs == 0  # equal is not old enough
    kit.clock.pass_time(1)
    assert run(kit).blobs == 4
    assert kit.files("commits/") == []
    assert len(kit.files("history/")) == 1


def test_a_lease_keeps_what_was_alive_when_it_began(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    with HeldLease(kit.catalog, kit.runtime, "scan", "a test") as hold:
        compact(kit.catalog, kit.blobs, kit.runtime, force=True)
        for _ in range(5):
            run(kit, horizon_us=0)
            kit.clock.pass_time(limits.LEASE_US // 2)
            hold.renew()
        assert len(kit.files("commits/")) == 4
    run(kit, horizon_us=0)
    run(kit, horizon_us=0)
    assert kit.files("commits/") == []


def test_a_failed_renewal_is_retried_at_once(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def expires_at() -> int:
        with kit.catalog.reading() as snapshot:
            (lease,) = snapshot.leases()
        return lease.expires_at

    def busy(*_: object) -> None:
        raise StoreBusy("another process holds the store")

    with HeldLease(kit.catalog, kit.runtime, "scan", "a test") as hold:
        kit.clock.pass_time(limits.LEASE_US // 2)
        with monkeypatch.context() as patched:
            patched.setattr(SqlWriting, "put_lease", busy)
            with pytest.raises(StoreBusy):
                hold.renew()
        hold.renew()
        assert expires_at() == kit.clock.now() + limits.LEASE_US


def test_an_expired_lease_is_ignored_and_removed(kit: Kit) -> None:
    now = kit.clock.now()
    with kit.catalog.writing() as txn:
        txn.put_lease(Lease("a", "scan", "gone", now, Micros(now + SECOND)))
    assert run(kit, horizon_us=0).horizon == now
    kit.clock.pass_time(SECOND)
    report = run(kit, horizon_us=0)
    assert (report.horizon, report.leases) == (now + SECOND, 1)
    with kit.catalog.reading() as snapshot:
        assert snapshot.leases() == []


def test_the_horizon_never_goes_back(kit: Kit) -> None:
    first = run(kit, horizon_us=0).horizon
    kit.clock.pass_time(-HOUR)
    assert run(kit).horizon == first
    kit.clock.pass_time(HOUR)


def test_only_orphans_older_than_the_horizon_are_removed(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    now = kit.clock.now()
    old = [keys.commit_key(Micros(now - 2 * HOUR), "0" * 24), keys.history_key(Micros(now - 2 * HOUR), "1" * 24)]
    young = keys.commit_key(Micros(now - HOUR), "2" * 24)
    foreign = "commits/notes.txt"
    for key in (*old, young, foreign):
        kit.blobs.put(key, [b"some bytes"])
    report = run(kit)
    assert (report.orphans, report.bytes_freed) == (2, 20)
    assert {young, foreign} <= set(kit.files())
    assert not set(old) & set(kit.files())


def test_a_commit_stalled_beyond_the_horizon_is_refused(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    stalled = kit.committer.prepare(kit.batches(stream, [3]))
    kit.clock.pass_time(limits.HORIZON_US + 1)
    assert run(kit).orphans == 1
    assert stalled.blob is not None
    (verdicts,) = kit.catalog.commit(kit.as_commit(stalled))
    assert isinstance(verdicts[0], Refused)
    assert verdicts[0].reason is Refusal.EXPIRED


def test_a_crash_between_row_and_file_leaves_an_orphan_that_is_found(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    kit.drop(stream)
    run(kit, horizon_us=0)
    kit.clock.pass_time(1)

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(kit.blobs, name)

        def delete(self, key: str) -> None:
            raise StoreUnavailable("the disk is gone")

    failing: Any = Failing()
    with pytest.raises(StoreUnavailable):
        collect(kit.catalog, failing, kit.runtime, horizon_us=0)
    assert len(kit.files()) == 4
    report = run(kit, horizon_us=0)
    assert report.orphans + report.blobs == 4
    assert kit.files() == []


def test_a_blob_that_is_published_late_is_unmarked(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream, 1)
    with kit.catalog.writing() as txn:
        (row,) = txn.blobs_after(0, 10)  # type: ignore[arg-type]
        txn.set_blob_dead(row.id, Micros(1))
    settle(kit)
    with kit.catalog.reading() as snapshot:
        (row,) = snapshot.blobs_after(0, 10)  # type: ignore[arg-type]
    assert row.dead_at is None
    assert len(kit.files()) == 1


def test_a_log_keeps_its_writers_answers_until_the_horizon_has_passed(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    kit.drop(stream)
    run(kit)
    with kit.catalog.reading() as snapshot:
        (writer, progress) = snapshot.writers_of_log(log, "", 10)[0]  # type: ignore[arg-type]
    assert (writer, progress.next) == ("w", 20)
    assert state(kit, log).sealed
    settle(kit)
    assert state(kit, log) is None


def test_empty_spans_hold_no_extents_but_their_log(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    copied = kit.copy(stream, "iot/nothing")
    with kit.catalog.writing() as txn:
        txn.put_segment(copied, Segment(SegmentId(0, 0), kit.view(copied).ordered[0].range, None, 0))
        txn.put_span(copied, Span(SegmentId(0, 0), 0, log, 0, 0))
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
    kit.drop(stream)
    settle(kit)
    assert kit.extents(log) == []
    assert state(kit, log).low_water == 20


def test_old_requests_writers_and_changes_are_removed(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    kit.append(stream, [1])
    now = kit.clock.now()
    with kit.catalog.writing() as txn:
        for number in range(2_500):
            txn.record_request(f"r{number}", "test", "{}", now=now)
        txn.add_change(stream, "created", {}, now=now)
    kit.clock.pass_time(max(limits.REQUESTS_KEPT_US, limits.WRITER_PROGRESS_KEPT_US, limits.CHANGES_KEPT_US) + 1)
    kit.append(stream, [1], writer="other")
    with kit.catalog.writing() as txn:
        txn.add_change(stream, "sealed", {}, now=kit.clock.now())
    report = run(kit)
    assert (report.requests, report.writers, report.changes) == (2_500, 1, 1)
    with kit.catalog.reading() as snapshot:
        assert [change.kind for change in snapshot.changes(0, 10)] == ["sealed"]


def test_a_reader_with_a_stale_plan_reads_the_same_rows(kit: Kit) -> None:
    stream = kit.create("iot/sensors")
    fill(kit, stream)
    (log,) = kit.logs(stream)
    plan = kit.extents(log)
    rows = kit.read(log)
    compact(kit.catalog, kit.blobs, kit.runtime, force=True)
    settle(kit)
    assert all(kit.blobs.size(extent.key or "") is None for extent in plan)
    assert kit.read(log) == rows
    assert isinstance(rows, pa.Table)
