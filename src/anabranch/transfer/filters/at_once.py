"""Copying by a filter in one transaction, where the catalog alone can tell which events match, and no event must be
stored again. Otherwise the job `transfer.jobs.copy_where` makes the copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.copy import CopyResult
from anabranch.core.filtered_slice import KeptEvents, filtered_slice, in_place, summary
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.errors import Truncated
from anabranch.log.lease import HeldLease
from anabranch.log.read import LogReader
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ports import Runtime
from anabranch.streams.algebra.copy import copy_arguments, existing_copy, insert_copy
from anabranch.streams.algebra.replacement import RewriteNeeded
from anabranch.streams.directory.find import need_view, range_cuts, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.transfer.filters.event_filter import EventFilter
from anabranch.transfer.filters.scan import ScannedPart, scattered, selected_runs

Change = Callable[[Callable[[Writing, Micros], dict[str, Any]]], dict[str, Any]]


def copy_at_once(
    logs: LogReader,
    runtime: Runtime,
    source: StreamRange,
    target: StreamName,
    event_filter: EventFilter,
    stream: StreamId,
    change: Change,
) -> CopyResult:
    """Create `target`, with the id `stream`, of the matching events of `source`. `change` runs a function in one
    transaction, once for the caller's request. Raises ReadNeeded or RewriteNeeded, before anything is changed, if a job
    is needed; StreamNotFound, ScopeNotFound, StreamExists, InvalidCut, Truncated, InvalidArgument for a byte stream."""
    asked = copy_arguments(source, where=event_filter.where)
    with HeldLease(logs.catalog, runtime, "copy", str(target)) as lease:
        while True:
            with logs.catalog.reading() as reading:
                view = need_view(reading, range_stream(source))
                made = existing_copy(reading, view.info.id, target, asked)
                need_scope(reading, target.scope)
            reject_byte_stream(view.info)
            part = plan_slice(view, *range_cuts(source))
            try:
                kept = None if made is not None else _kept_events(logs, part, event_filter, lease)
            except Truncated:
                continue  # meanwhile

            def act(
                txn: Writing,
                now: Micros,
                part: StreamSlice = part,
                kept: Mapping[SegmentId, list[KeptEvents]] | None = kept,
            ) -> dict[str, Any]:
                view = need_view(txn, part.view.info.id)
                if (made := existing_copy(txn, view.info.id, target, asked)) is not None:
                    return made.to_json()
                if kept is None:
                    raise _CopyGone
                need_scope(txn, target.scope)
                found, ranges = filtered_slice(plan_slice(view, part.start, part.end), kept)
                filtered = summary(event_filter.where, kept, ranges)
                return insert_copy(txn, found, target, stream, asked, now, filtered=filtered).to_json()

            try:
                return CopyResult.from_json(change(act))
            except (Truncated, _CopyGone):
                continue


class _CopyGone(Exception):
    """The copy that existed was deleted or renamed meanwhile."""


def _kept_events(
    logs: LogReader, part: StreamSlice, event_filter: EventFilter, lease: HeldLease
) -> dict[SegmentId, list[KeptEvents]]:
    kept: dict[SegmentId, list[KeptEvents]] = {}
    for piece in part.segments:
        where = ScannedPart(part.view, piece.segment.id, piece.segment.head, piece.stop)
        runs = selected_runs(logs, where, event_filter, read=False, watch=lease.renew)
        if scattered(runs):
            raise RewriteNeeded
        kept[piece.segment.id] = [in_place(*run) for run in runs]
    return kept
