"""Which events of a segment a filter selects: from the catalog where it can tell, else by reading the columns that the
filter names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core.event_condition import ExtentFacts, Match, match
from anabranch.core.ranges import union
from anabranch.core.replacement import Run, rewrite_groups
from anabranch.errors import BlobMissing
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader, Selection, appended_of, offsets_of
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.time_scan import ReadNeeded
from anabranch.model.append import TimeBounds
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView
from anabranch.transfer.filters.event_filter import EventFilter

_UNKNOWN = TimeBounds(None, None)


class ScannedPart(NamedTuple):
    """The offsets `start <= offset < stop` of a segment of a stream."""

    view: StreamView
    segment: SegmentId
    start: int
    stop: int


def selected_runs(
    logs: LogReader,
    part: ScannedPart,
    event_filter: EventFilter,
    *,
    read: bool,
    watch: Callable[[], object] = lambda: None,
) -> list[Run]:
    """The matching events, as runs in order. Calls `watch` for each page of extents. Raises ReadNeeded if, without
    `read`, the catalog can't tell; InvalidSql, Truncated, StreamNotFound, CorruptBlob."""
    if part.start >= part.stop:
        return []
    facts = ExtentFacts(part.view.segments[part.segment].range, _UNKNOWN, _UNKNOWN)
    whole = match(event_filter.condition, facts)
    if whole is not Match.SOME:
        return [(part.start, part.stop)] if whole is Match.ALL else []
    source = SegmentReader(logs, part.view, part.segment)
    runs: list[Run] = []
    offset = part.start
    while offset < part.stop:
        page = source.plan(offset, part.stop)
        found: list[Run] = []
        try:
            for decided, pieces in groupby(page.extents, key=lambda piece: _match_extent(event_filter, facts, piece)):
                if decided is Match.ALL:
                    found += [(piece.start + piece.shift, piece.stop + piece.shift) for piece in pieces]
                elif decided is Match.SOME:
                    if not read:
                        raise ReadNeeded
                    found += _read(logs, part, list(pieces), event_filter)
        except BlobMissing as exc:
            source.plan_again(exc)
            continue
        runs = union([*runs, *found])
        offset = page.stop
        watch()
    return runs


def scattered(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
    """The runs that are worth rewriting together."""
    return rewrite_groups(
        runs,
        view_min=limits.REPLACE_VIEW_EVENTS,
        runs_min=limits.REPLACE_RUNS_MIN,
        events_max=limits.REPLACE_EVENTS_MAX,
    )


def _match_extent(event_filter: EventFilter, facts: ExtentFacts, piece: PlannedExtent) -> Match:
    extent = piece.extent
    return match(event_filter.condition, ExtentFacts(facts.keys, extent.appended, extent.events))


def _read(
    logs: LogReader, part: ScannedPart, pieces: Sequence[PlannedExtent], event_filter: EventFilter
) -> Iterator[Run]:
    for rows in logs.rows(pieces, Selection(event_filter.columns)):
        offsets = offsets_of(rows)
        chosen = event_filter.matching(part.segment, rows.batch, offsets, appended_of(rows))
        if len(chosen):
            yield from _runs(offsets.take(pa.array(chosen)))


def _runs(offsets: pa.Array) -> Iterator[Run]:
    """Offsets in order, as runs."""
    found = offsets.to_numpy()
    breaks = np.flatnonzero(np.diff(found) != 1)
    starts = found[np.concatenate([[0], breaks + 1])]
    stops = found[np.concatenate([breaks, [len(found) - 1]])] + 1
    yield from zip(starts.tolist(), stops.tolist(), strict=True)
