"""Replacing a time range of a stream where no event must be stored again: a scan of times, and one transaction.

Where kept events must be stored again, the job `transfer.jobs.replace_range` first stores them, in portions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.ranges import kept_runs
from anabranch.core.replacement import Run, rewrite_groups
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.time_scan import ReadNeeded, TimeScan
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.replaced import Replaced
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ports import Runtime
from anabranch.streams.algebra.replace import replace_events
from anabranch.streams.directory.find import need_view

SCANNED = "events scanned"
"""The step of a replacement that scans times, as passed to progress callbacks."""


class RewriteNeeded(Exception):
    """Kept events lie scattered between removed ones, and must be stored again."""


def replace_at_once(
    catalog: Catalog,
    runtime: Runtime,
    stream: StreamId,
    scan: TimeScan,
    source: StreamRange | None,
    change: Callable[[Callable[[Writing, Micros], dict[str, Any]]], dict[str, Any]],
    *,
    drop: Collection[StreamId] = (),
    progress: ProgressCallback = no_progress,
) -> Replaced:
    """Replace the events that `scan` finds, by changing only the catalog. `change` runs a function in one transaction,
    once for the caller's request. Raises RewriteNeeded, as soon as that is known and before anything is changed; and
    what `replace_events` raises."""
    with HeldLease(catalog, runtime, "replace", f"{stream:016x}") as lease:
        tries = limits.REPLACE_TRIES_MAX
        while True:
            with catalog.reading() as reading:
                view = need_view(reading, stream)
            total = view.events

            def watch(view: StreamView = view, total: int = total) -> None:
                lease.renew()
                progress(SCANNED, scanned_events(scan), total)
                if portions(scan, view):
                    raise RewriteNeeded

            scan.advance(view, watch)
            tries -= 1

            def act(txn: Writing, now: Micros, read: bool = tries <= 0) -> dict[str, Any]:
                return replace_events(txn, stream, scan, source, now, read=read, drop=drop).to_json()

            try:
                return Replaced.from_json(change(act))
            except ReadNeeded:
                continue  # the catalog alone does not have the times of what was appended since


def scanned_events(scan: TimeScan) -> int:
    """How many offsets the scan has passed."""
    return sum(known.stop for known in scan.segments.values())


def portions(scan: TimeScan, view: StreamView) -> list[tuple[SegmentId, tuple[Run, ...]]]:
    """The kept events to store again, by what was scanned so far: runs of a segment that go into one log."""
    return [(segment.id, runs) for segment in view.ordered for runs in _portions_of(scan, view, segment.id)]


def _portions_of(scan: TimeScan, view: StreamView, segment: SegmentId) -> list[tuple[Run, ...]]:
    if segment not in scan.segments:
        return []
    removed = scan.runs(view, segment)
    if len(removed) < 2:  # all kept events lie before or after a single removed run
        return []
    return rewrite_groups(
        kept_runs(removed[0][1], removed[-1][0], removed),
        view_min=limits.REPLACE_VIEW_EVENTS,
        runs_min=limits.REPLACE_RUNS_MIN,
        events_max=limits.REPLACE_EVENTS_MAX,
    )
