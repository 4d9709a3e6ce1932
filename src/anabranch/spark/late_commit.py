"""The late events of a micro-batch, published in one unit with the batch's results.

`anabranch.spark.late` says which events Spark's watermark drops. When a batch is committed, its watermarks and the
ranges that it read from its sources stand in the query's checkpoint, so the events that came too late are looked up
there. Only extents whose earliest event time lies behind the watermark are read, so this costs what is late. A replayed
batch finds the same events again.

An event counts as late where Spark would drop it from the source's rows: filters of the query are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.core import cuts
from anabranch.errors import InvalidArgument
from anabranch.log.lease import Hold
from anabranch.log.read import Selection
from anabranch.log.view import load
from anabranch.model.columns import TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.spark.checkpoint_place import CheckpointPlace
from anabranch.spark.late import WATERMARK_COLUMN, is_late
from anabranch.spark.offsets import SourceOffset
from anabranch.spark.scan import Range, read_rows
from anabranch.spark.statement import Window
from anabranch.spark.stores import Opened
from anabranch.streams.publish import Publication

__all__ = ["BatchRead", "LateAccount", "batch_read", "late_publication"]

_EARLIEST: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class LateAccount:
    """Which late events are kept and where. `sources` maps each stream that the query reads to its column of event
    times; without `windows` what counts is an event's own time. `target` has, of the sources' columns, those that
    shall be kept, and `_watermark`; named by its id, it may be renamed meanwhile."""

    target: StreamName | StreamId
    sources: Mapping[StreamName, str]
    windows: tuple[Window, ...]

    def to_option(self) -> str:
        """The value of the sink's option `late`."""
        windows = [[each.column, each.size_us, each.slide_us, each.start_us] for each in self.windows]
        sources = {str(name): column for name, column in self.sources.items()}
        target = str(self.target) if isinstance(self.target, StreamName) else self.target
        return json.dumps({"target": target, "sources": sources, "windows": windows})

    @classmethod
    def from_option(cls, text: str) -> LateAccount:
        """The inverse of `to_option`. Raises InvalidArgument."""
        try:
            told = json.loads(text)
            return cls(
                StreamId(target) if isinstance(target := told["target"], int) else StreamName.parse(target),
                {StreamName.parse(name): str(column) for name, column in told["sources"].items()},
                tuple(Window(str(column), *map(int, numbers)) for column, *numbers in told["windows"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise InvalidArgument(f"option 'late' is JSON with target, sources and windows: {exc}") from exc


@dataclass(frozen=True, slots=True)
class BatchRead:
    """What a micro-batch read: from each stream what lies between two cuts. It dropped what was late for
    `watermark_us`."""

    watermark_us: int
    parts: Mapping[StreamName, tuple[StreamCut, StreamCut]]


def batch_read(checkpoint: CheckpointPlace, batch: int) -> BatchRead:
    """What the checkpoint says of a batch. Raises InvalidArgument where it can't be read.

    Of a stream that the query reads twice, the first occurrence is told.
    """
    now = _entry(checkpoint, batch)
    before = _entry(checkpoint, batch - 1) if batch else _Entry(0, ())
    begun: dict[StreamName, StreamCut] = {}
    for offset in before.sources:
        begun.setdefault(offset.stream, offset.cut)
    parts: dict[StreamName, tuple[StreamCut, StreamCut]] = {}
    for offset in now.sources:
        parts.setdefault(offset.stream, (begun.get(offset.stream, offset.origin), offset.cut))
    return BatchRead(before.watermark_us, parts)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A batch's entry in Spark's offset log."""

    watermark_us: int
    sources: tuple[SourceOffset, ...]


def _entry(checkpoint: CheckpointPlace, batch: int) -> _Entry:
    name = f"offsets/{batch}"
    try:
        found = checkpoint.read(name)
        if found is None:
            raise FileNotFoundError("there is no such file")
        _, settings, *lines = found.splitlines()
        watermark_us = 1000 * int(json.loads(settings)["batchWatermarkMs"])
        offsets = [json.loads(line) for line in lines if line.startswith("{")]
    except (OSError, ValueError, KeyError) as exc:
        path = f"{checkpoint.for_spark}/{name}"
        raise InvalidArgument(f"{path} does not tell what batch {batch} read: {exc}") from exc
    return _Entry(watermark_us, tuple(SourceOffset.from_json(each) for each in offsets if "cut" in each))


def late_publication(opened: Opened, account: LateAccount, read: BatchRead, hold: Hold) -> Publication | None:
    """The batch's late events, staged under `hold`; None where there are none. Raises StreamNotFound, InvalidArgument
    where an account's column is not the stream's event time, Truncated, CorruptStore."""
    target = opened.store.streams.get(account.target)
    stager = opened.store.stager(target.id)
    for name, time in account.sources.items():
        if name in read.parts:
            start, end = read.parts[name]
            names = [column for column in target.schema.columns.names if column != WATERMARK_COLUMN]
            for rows in _late_rows(opened, start, end, time, names, account.windows, read.watermark_us):
                stager.write(rows)
                hold.renew()
    staged = stager.finish()
    return Publication(target.id, staged) if staged else None


def _late_rows(
    opened: Opened,
    start: StreamCut,
    end: StreamCut,
    time: str,
    names: list[str],
    windows: tuple[Window, ...],
    watermark_us: int,
) -> Iterator[pa.RecordBatch]:
    with opened.store.catalog.reading() as reading:
        view = load(reading, start.stream)
    stored = view.info.schema
    if time != stored.time:  # extents are pruned by the stream's own event time
        raise InvalidArgument(f"late events of '{view.info.name}' are told by its event time, not by '{time}'")
    columns = pa.schema([field for field in stored.columns if field.name in names])
    wanted = columns if time in columns.names else columns.append(stored.columns.field(time))
    # Every late event is earlier than the watermark: it lies in its window, and that has ended.
    selection = Selection(wanted, time=time, between=(_EARLIEST, watermark_us + 1))
    ranges = (Range(*each) for each in cuts.ranges(view, start, end))
    for _, rows in read_rows(opened, view, ranges, selection):
        times = rows.batch.column(time).cast(pa.int64()).to_numpy()
        late = rows.batch.take(pa.array(np.flatnonzero(is_late(times, windows, watermark_us))))
        if late.num_rows:
            stamp = pa.repeat(pa.scalar(watermark_us, TIME_TYPE), late.num_rows)
            yield late.select(columns.names).append_column(WATERMARK_COLUMN, stamp)
