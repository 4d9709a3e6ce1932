"""Applies retention policies: truncates each stream to the events that its policy keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.retention import ALL, RETENTION_RUN, RetentionRun
from anabranch.core import cuts
from anabranch.errors import StreamNotFound, Truncated
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.sizes import measure, segment_bytes
from anabranch.log.time_index import approximate_cut
from anabranch.log.upkeep.failures import Isolation
from anabranch.log.view import with_current_spans
from anabranch.model.cut import Edge, Order, StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.runtime.log_events import RETENTION_PASSED_GROUP, RETENTION_TRUNCATED
from anabranch.runtime.ports import Runtime
from anabranch.streams.directory.find import need_view
from anabranch.streams.retention.plan import RetentionIndex, plan_bounds, plan_cut
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import any_policy, policies, stored_policy, subscribed
from anabranch.streams.retention.subscribers import (
    LostEvents,
    OpenGroup,
    StateIn,
    SubscriberPosition,
    Subscribers,
    consumed,
    record_lost_events,
)
from anabranch.streams.segments import truncate_stream

_LEASE: Final = "retain"

CutAt = Callable[[StreamView, Micros, bool], StreamCut]


def unknown_progress(group: StreamId) -> StateIn:
    """Treats every group's progress as unknown, so each keeps everything that no age or size bound removes."""
    return lambda txn: None


@dataclass(frozen=True, slots=True)
class RetainReport:
    """The result of a run: `truncated` of the `streams` with a policy lost `events`, of `bytes` logical bytes in all.
    The next collection frees files. `passed` lists the subscribers that had not read all of them; `skipped` says why
    streams failed."""

    streams: int = 0
    truncated: int = 0
    events: int = 0
    bytes: int = 0
    seconds: float = 0.0
    passed: tuple[LostEvents, ...] = ()
    skipped: tuple[str, ...] = ()


def retain(
    catalog: Catalog,
    runtime: Runtime,
    cut_at: CutAt,
    *,
    stream: StreamId | None = None,
    open_group: OpenGroup = unknown_progress,
    background: bool = False,
    progress: ProgressCallback = no_progress,
) -> RetainReport:
    """Truncate one stream, or all that have a policy, to what its policy keeps now. Works a stream at a time, each in
    one transaction; safe concurrently with everything else. When processing all streams, those that fail are skipped
    and reported; `background` also skips those that failed recently (see `log.upkeep.failures`). `progress` is called
    with the count of streams. `open_group` opens a group's state."""
    started_s = runtime.clock.monotonic()
    with catalog.reading() as txn:
        chosen = (
            policies(txn) if stream is None else [(stream, policy)] if (policy := stored_policy(txn, stream)) else []
        )
    report = RetainReport()
    isolation = Isolation(catalog, runtime, "retain", background=background)
    with HeldLease(catalog, runtime, _LEASE, f"{len(chosen)} stream(s)") as lease:
        for done, (each, policy) in enumerate(chosen, 1):
            lease.renew()
            if stream is not None:
                report = _add(report, retain_one(catalog, runtime, cut_at, each, policy, open_group=open_group))
                isolation.clear_failure(each)
            elif not isolation.is_backing_off(each):
                with isolation.guard(each):
                    report = _add(report, retain_one(catalog, runtime, cut_at, each, policy, open_group=open_group))
            progress("streams", done, len(chosen))
        if stream is None:
            isolation.clear_failures()
            with catalog.writing(RETENTION_RUN.name) as txn:
                txn.put_state(RETENTION_RUN, ALL, RetentionRun(lease.begun_at))
    return replace(report, skipped=tuple(isolation.failed), seconds=runtime.clock.monotonic() - started_s)


def retain_if_due(
    catalog: Catalog, runtime: Runtime, cut_at: CutAt, *, open_group: OpenGroup = unknown_progress
) -> RetainReport | None:
    """Like `retain`, in the background: if the settings enable it, the last run is long enough ago, and no other process
    is running it; else returns None."""
    period = runtime.settings.retention_s
    if period is None:
        return None
    now = runtime.clock.now()
    with catalog.reading() as txn:
        done = txn.state(RETENTION_RUN, ALL)
        busy = any(lease.kind == _LEASE and lease.expires_at > now for lease in txn.leases())
        idle = not any_policy(txn)
    if busy or idle or (done is not None and done.at > now - round(period * 1_000_000)):
        return None
    report = retain(catalog, runtime, cut_at, open_group=open_group, background=True)
    if report.truncated:
        RETENTION_TRUNCATED(events=report.events, streams=report.truncated)
    return report


def _add(report: RetainReport, stream_report: RetainReport) -> RetainReport:
    return RetainReport(
        report.streams + stream_report.streams,
        report.truncated + stream_report.truncated,
        report.events + stream_report.events,
        report.bytes + stream_report.bytes,
        passed=(*report.passed, *stream_report.passed),
    )


def retain_one(
    catalog: Catalog,
    runtime: Runtime,
    cut_at: CutAt,
    stream: StreamId,
    policy: Retention,
    *,
    open_group: OpenGroup,
    limit: StreamCut | Edge | None = None,
) -> RetainReport:
    """Truncate one stream to what its policy keeps now, at most up to `limit`."""
    with catalog.reading() as txn:
        view = None if txn.stream(stream) is None else need_view(txn, stream)
    if view is None:  # deleted since
        return RetainReport()

    def weigh(segment: SegmentId, start: int, stop: int) -> int:
        with catalog.reading() as txn:
            return segment_bytes(txn, with_current_spans(txn, view), segment, start, stop)

    index = RetentionIndex(
        lambda time: cut_at(view, time, False), lambda time: approximate_cut(catalog, view, time), weigh
    )
    now = runtime.clock.now()
    try:
        bounds = plan_bounds(view, policy, now=now, index=index)
        subscribers = Subscribers(catalog, stream, open_group) if policy.groups else None

        def decide(txn: Reading) -> tuple[StreamView, list[SubscriberPosition], StreamCut]:
            """Decide within one transaction: a group may be reset at any time, which moves its positions back."""
            current_view = need_view(txn, stream)
            for each in (bounds.remove_before, bounds.keep_after):
                if each is not None:
                    cuts.check_cut(current_view, each)
            positions = [] if subscribers is None else subscribers.positions(txn, current_view, policy.release)
            cut = plan_cut(current_view, bounds, consumed(current_view, positions))
            if limit is not None:
                cut = cuts.intersection(current_view, cut, _limit(current_view, limit))
            return current_view, positions, cut

        if subscribers is None:
            current_view, cut, unchanged = view, plan_cut(view, bounds, None), True
        else:
            with catalog.reading() as txn:
                current_view, positions, cut = decide(txn)
                unchanged = [each.subscribed for each in positions] == subscribed(txn, stream)
        if unchanged and cuts.compare(current_view, cuts.head_cut(current_view), cut) is Order.SAME:
            return RetainReport(streams=1)
        # Groups are kept on streams of their own, which a transaction on one stream does not lock.
        with catalog.writing(None if policy.groups else stream) as writing:
            if policy.groups and stored_policy(writing, stream) != policy:
                return RetainReport(streams=1)  # the policy changed: left to the next run
            locked_view, positions, cut = decide(writing)
            passed = record_lost_events(writing, locked_view, policy, positions, cut, now) if positions else []
            if cuts.compare(locked_view, cuts.head_cut(locked_view), cut) is Order.SAME:
                return RetainReport(streams=1)
            removed = measure(writing, locked_view, cuts.head_cut(locked_view), cut)
            truncate_stream(writing, locked_view, cut, now)
    except (StreamNotFound, Truncated):  # deleted, or truncated further, concurrently
        return RetainReport(streams=1)
    for each in passed:
        RETENTION_PASSED_GROUP(stream=each.stream, group=each.group, events=each.events, bytes=each.bytes)
    return RetainReport(1, 1, removed.events, removed.bytes, passed=tuple(passed))


def _limit(view: StreamView, limit: StreamCut | Edge) -> StreamCut:
    """The limit as a cut, raised to the head where it lies before the head."""
    if isinstance(limit, StreamCut) and limit.stream == view.info.id and cuts.below_head(view, limit.as_dict()):
        return cuts.clamp_to_head(view, limit)
    return cuts.resolve(view, limit)
