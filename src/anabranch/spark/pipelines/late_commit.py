"""Finds the late events of a micro-batch, and publishes them in one atomic unit with the batch's results.

In batch N, Spark 4.3 drops events by the watermark that it stored with the offsets of batch N-1 (0 in the first batch), and
closes windows by the watermark of batch N. So an event is late for a window exactly if the window's end is at or before
the watermark of batch N-1. Spark counts dropped rows only after partial aggregation within each partition, and reports neither which events
they are nor how many. So the late events are computed here (`is_late`).

When a batch is committed, the query's checkpoint contains its watermarks and the ranges that it read from its sources. The
late events are then read again from those ranges. Only extents whose earliest event time is before the watermark are read,
so the cost depends on the number of late events. A replayed batch finds the same events again.

An event counts as late if Spark would drop it from the source's rows. Filters of the query are not considered. An event can
be late for some of its sliding windows and in time for others. The stream of late events holds it once, with the watermark.
A reader decides for each window that contains the event's time: the event is late for it if the window's end is at or before
`_watermark`. Then for each closed window, Spark's count and the late events add up to all events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.model.columns import APPENDED, TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.pipelines.windows.spans import StatementWindow, first_ends
from anabranch.spark.source.checkpoint import PlannedBatch, planned_batch
from anabranch.spark.source.scan import ScanRange, read_rows
from anabranch.store import Store
from anabranch.store.engine_api import HeldLease, Publication, Selection, append_time, load

__all__ = ["WATERMARK_COLUMN", "BatchRead", "LateEventsSpec", "batch_read", "is_late", "late_publication"]


_EARLIEST: Final = -(1 << 62)

WATERMARK_COLUMN = "_watermark"
TimesUs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LateEventsSpec:
    """Which late events are kept, and where. `sources` maps the id of each stream that the query reads to its event time
    column. Without `windows` an event's own time decides whether it is late. `target` is the stream for late events. It has
    `_watermark`, and each column of the sources that is kept. It is None until the stream is there.

    A window takes events until the watermark passes its end. With `lateness_us` it takes them for that much longer, and the
    watermark is the one of the batch itself. Without, it is the watermark of the previous batch, as in Spark."""

    target: StreamId | None
    sources: Mapping[StreamId, str]
    windows: tuple[StatementWindow, ...]
    lateness_us: int | None = None


@dataclass(frozen=True, slots=True)
class BatchRead:
    """What a micro-batch read: for each stream, by its id, the events between two cuts. `watermark_us` is the watermark
    of the previous batch, behind which Spark drops events; `own_watermark_us` is the one of this batch."""

    watermark_us: int
    parts: Mapping[StreamId, tuple[StreamCut, StreamCut]]
    own_watermark_us: int = 0


def batch_read(checkpoint: CheckpointFolder, batch: int) -> BatchRead:
    """What a batch read, from the checkpoint. Raises InvalidArgument if the checkpoint can't be read.

    If the query reads a stream twice, only the first occurrence is returned.
    """
    now = planned_batch(checkpoint, batch)
    before = planned_batch(checkpoint, batch - 1) if batch else PlannedBatch(0, ())
    begun: dict[StreamId, StreamCut] = {}
    for offset in before.ends:
        begun.setdefault(offset.cut.stream, offset.cut)
    parts: dict[StreamId, tuple[StreamCut, StreamCut]] = {}
    for offset in now.ends:
        parts.setdefault(offset.cut.stream, (begun.get(offset.cut.stream, offset.origin), offset.cut))
    return BatchRead(before.watermark_us, parts, now.watermark_us)


def late_publication(opened: Store, spec: LateEventsSpec, read: BatchRead, hold: HeldLease) -> Publication | None:
    """The batch's late events, staged under `hold`; None if there are none. Raises StreamNotFound, InvalidArgument if
    the time column in `spec` is not the stream's event time, Truncated, CorruptStore."""
    assert spec.target is not None, "it is there before the query starts"
    target = opened.streams.get(spec.target)
    stager = opened.stager(target.id, lease=hold.lease)
    lateness_us = spec.lateness_us
    watermark_us = read.watermark_us if lateness_us is None else read.own_watermark_us - lateness_us
    for source, time in spec.sources.items():
        if source in read.parts:
            start, end = read.parts[source]
            names = [column for column in target.schema.columns.names if column != WATERMARK_COLUMN]
            for rows in _late_rows(opened, start, end, time, names, spec.windows, watermark_us):
                stager.write(rows)
                hold.renew()
    staged = stager.finish()
    return Publication(target.id, staged) if staged else None


def _late_rows(
    opened: Store,
    start: StreamCut,
    end: StreamCut,
    time: str,
    names: list[str],
    windows: tuple[StatementWindow, ...],
    watermark_us: int,
) -> Iterator[pa.RecordBatch]:
    with opened.catalog.reading() as reading:
        view = load(reading, start.stream)
    stored = view.info.schema
    if time == APPENDED:
        yield from _late_appended(opened, view, cuts.ranges(view, start, end), names, windows, watermark_us)
        return
    if time != stored.time:  # extents are pruned by the stream's own event time
        raise InvalidArgument(f"late events of '{view.info.name}' are recognized by its event time, not by '{time}'")
    columns = pa.schema([field for field in stored.columns if field.name in names])
    wanted = columns if time in columns.names else columns.append(stored.columns.field(time))
    # A late event's time is at most the watermark, with windows and without: no later extents have to be read.
    selection = Selection(wanted, time=time, between=(_EARLIEST, watermark_us + 1))
    ranges = (ScanRange(*each) for each in cuts.ranges(view, start, end))
    for _, rows in read_rows(opened, view, ranges, selection):
        times = rows.batch.column(time).cast(pa.int64()).to_numpy()
        late = rows.batch.take(pa.array(np.flatnonzero(is_late(times, windows, watermark_us))))
        if late.num_rows:
            stamp = pa.repeat(pa.scalar(watermark_us, TIME_TYPE), late.num_rows)
            yield late.select(columns.names).append_column(WATERMARK_COLUMN, stamp)


def _late_appended(
    opened: Store,
    view: StreamView,
    ranges: Sequence[tuple[SegmentId, int, int]],
    names: list[str],
    windows: tuple[StatementWindow, ...],
    watermark_us: int,
) -> Iterator[pa.RecordBatch]:
    """As `_late_rows`, by append times. These ascend in a segment, so mostly the first one shows that none is late."""
    columns = pa.schema([field for field in view.info.schema.columns if field.name in names])
    logs = opened.internals.logs
    early = [each for each in ranges if append_time(logs, view, *each[:2]) <= watermark_us]
    for _, rows in read_rows(opened, view, (ScanRange(*each) for each in early), Selection(columns)):
        appended = rows.appended
        times = (
            np.full(rows.batch.num_rows, appended)
            if isinstance(appended, int)
            else appended.cast(pa.int64()).to_numpy(zero_copy_only=False)
        )
        late = rows.batch.take(pa.array(np.flatnonzero(is_late(times, windows, watermark_us))))
        if late.num_rows:
            stamp = pa.repeat(pa.scalar(watermark_us, TIME_TYPE), late.num_rows)
            yield late.append_column(WATERMARK_COLUMN, stamp)


def is_late(times_us: TimesUs, windows: Sequence[StatementWindow], watermark_us: int) -> npt.NDArray[np.bool_]:
    """True for each event that is late for at least one window.

    Without windows (a join of streams), the event's own time decides.
    """
    late = np.zeros(len(times_us), dtype=np.bool_)
    ends = [first_ends(times_us, window) for window in windows] or [times_us]
    for end in ends:
        late |= end <= watermark_us
    return late
