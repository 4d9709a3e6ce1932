"""Streams as a source of Spark: `spark.read` and `spark.readStream` with `format("anabranch")`.

Reading yields the chosen columns, then `_segment` (bigint, `SegmentId.packed`), `_offset` (bigint) and `_appended`
(timestamp), as Arrow batches. Types that Spark lacks are widened or refused; see `anabranch.spark.types`. What the
options mean stands in `anabranch.spark.options`.

Rows are chosen by options alone. There is no `pushFilters`: Spark 4.3 keeps what it led to for later queries over the
same view, which then return wrong rows (`tests/spark/test_pushfilters_bug.py`).

Spark makes readers in several processes and pickles them, so they hold options only and open the store when first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch.core import cuts
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.readers.place import to_cut
from anabranch.spark.admission import Limits, StoreTimes, end_of_batch
from anabranch.spark.complete import WATERMARK, complete_cut, readable
from anabranch.spark.offsets import SourceOffset
from anabranch.spark.options import ReadOptions
from anabranch.spark.scan import Range, chosen, deal, only_keys, read_ranges
from anabranch.spark.stores import Opened, open_store
from anabranch.spark.types import ADDED, spark_columns, spark_schema

__all__ = ["batch_reader", "schema", "stream_reader"]

# Spark's source process does not know how many cores there are elsewhere; twice as many tasks as here even things out.
_TASKS: Final = 2 * (os.cpu_count() or 1)

_Offset = dict[str, str]


def schema(options: Mapping[str, str]) -> StructType:
    """The columns that reading yields. Raises InvalidArgument and its kinds, StoreNotFound, StreamNotFound."""
    asked = ReadOptions.of(options)
    store = open_store(asked.store).store
    store.freshen(asked.stream)
    stored = store.streams.get(asked.stream_id or asked.stream).schema
    return spark_schema(pa.schema([*spark_columns(chosen(stored, asked.columns)), *ADDED]))


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """For `spark.read`: what lies between start and end when the query is planned."""
    return BatchReader(ReadOptions.of(options), _names(schema), _types(schema))


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """For `spark.readStream`."""
    return StreamReader(ReadOptions.of(options), _names(schema), _types(schema))


def _names(schema: StructType) -> tuple[str, ...]:
    """The stored columns among those of `schema`. Raises InvalidArgument where those that the store adds are not the
    last, as in a schema that somebody made up."""
    names = schema.fieldNames()
    added = [field.name for field in ADDED]
    if names[-len(added) :] != added:
        raise InvalidArgument("the schema is the stream's: leave out .schema(…) and use option 'columns'")
    return tuple(names[: -len(added)])


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _between(view: StreamView, start: StreamCut, end: StreamCut) -> Iterator[Range]:
    return (Range(*each) for each in cuts.ranges(view, cuts.check_cut(view, start), end))


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, stream: StreamId, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.stream = stream
        self.ranges = ranges


class _Source:
    """What both readers share."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...], types: Mapping[str, str]) -> None:
        self._options = options
        self._names = names
        self._types = types  # which Spark expects, as of the query's beginning
        self._complete: StreamCut | None = None  # where a read ends that ends at the watermark

    def _open(self) -> Opened:
        return open_store(self._options.store)

    def _view(self, stream: StreamId | None = None) -> StreamView:
        stream = stream or self._options.stream_id
        self._open().store.freshen(self._options.stream)
        if self._options.end == WATERMARK and self._complete is None:
            self._complete = complete_cut(self._open(), self._options.stream)
        with self._open().store.catalog.reading() as reading:
            info = reading.stream(self._options.stream) if stream is None else reading.stream(stream)
            if info is not None:
                return self._as_expected(load(reading, info.id))
        if stream is None:
            return self._open().store.streams.view(self._options.stream)  # which says what is missing
        raise InvalidArgument(
            f"stream '{self._options.stream}' is not the one that this query began with: it was deleted or made anew"
        )

    def _as_expected(self, view: StreamView) -> StreamView:
        found = _types(spark_schema(spark_columns(chosen(view.info.schema, self._names))))
        for name, kind in found.items():
            if kind != self._types[name]:
                raise SchemaMismatch(
                    f"column '{name}' of '{view.info.name}' is {kind} now, and was {self._types[name]} when this query "
                    "began: start it again",
                    column=name,
                )
        return view

    def _place(self, view: StreamView, place: str) -> StreamCut:
        opened = self._open()
        return to_cut(opened.store.catalog, opened.logs, view, place, by=self._options.by)

    def _last(self, view: StreamView, place: str) -> StreamCut:
        """A place where reading may end."""
        if place != WATERMARK:
            return self._place(view, place)
        assert self._complete is not None, "it was asked for ahead of the view"
        return readable(view, self._complete)

    def _deal(self, view: StreamView, ranges: Iterable[Range]) -> list[Ranges]:
        wanted = only_keys(view, ranges, self._options.keys)
        return [Ranges(view.info.id, share) for share in deal(wanted, tasks=_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the events of its ranges."""
        if isinstance(partition, Ranges):  # Spark makes one of its own where there is none
            options = self._options
            yield from read_ranges(
                self._open(), partition.stream, partition.ranges, self._names, options.keys, lossy=options.lossy
            )


class BatchReader(_Source, DataSourceReader):
    """Reads a stream once."""

    def partitions(self) -> Sequence[InputPartition]:
        """See Spark. Raises Truncated, InvalidArgument and its kinds."""
        if self._options.ranges is not None:
            stream, ranges = self._options.ranges
            return self._deal(
                self._view(StreamId(stream)), (Range(SegmentId.unpack(s), *edges) for s, *edges in ranges)
            )
        view = self._view()
        start = self._place(view, self._options.start)
        end = cuts.tail_cut(view) if self._options.end is None else self._last(view, self._options.end)
        return self._deal(view, _between(view, start, end))


class StreamReader(_Source, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches. One lives as long as a run of a query, in a process of its own; others only
    `read`."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...], types: Mapping[str, str]) -> None:
        super().__init__(options, names, types)
        self._first: SourceOffset | None = None
        self._end: StreamCut | None = None
        self._idle = False
        self._available_now = False
        self._tail: Tail | None = None

    def initialOffset(self) -> _Offset:  # noqa: N802
        """Where the first batch begins."""
        if self._first is None:
            view = self._view()
            cut = self._place(view, self._options.start)
            self._first = SourceOffset(self._options.stream, cut, cut)
        return self._first.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The options' limit; where there are two, Spark learns of one and both are kept."""
        if self._options.events_max is not None:
            return ReadMaxRows(self._options.events_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing behind the tail of this moment is read in this run."""
        self._available_now = True
        self._stop(self._view())

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:  # noqa: N802
        """Where the batch that begins at `start` ends; `start` itself where there is nothing new.

        Waits for news, but not if the call before brought some: then Spark asks only to know whether to run the batch
        without events that closes windows, and results would be late.
        """
        offset = SourceOffset.from_json(start)
        wait = self._idle and not self._available_now
        end = self._next(offset, limit, wait_s=self._options.poll_s if wait else 0.0)
        self._idle = end == offset.cut
        return start if self._idle else offset.at(end).to_json()

    def reportLatestOffset(self) -> _Offset | None:  # noqa: N802
        """The tail, from which Spark's progress tells how far behind the query is."""
        if self._first is None:
            return None
        return self._first.at(cuts.tail_cut(self._view(self._first.cut.stream))).to_json()

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """See Spark. Raises Truncated where the stream's head has passed the start, and that counts as a failure."""
        until = SourceOffset.from_json(end)
        begin = until.start_of_batch(SourceOffset.from_json(start))
        view = self._view(until.cut.stream)
        return self._deal(view, _between(view, self._readable(view, begin), self._readable(view, until.cut)))

    def commit(self, end: _Offset) -> None:
        """Nothing is kept for batches that are done."""

    def stop(self) -> None:
        """Nothing is held that must be given back."""

    def _next(self, offset: SourceOffset, limit: ReadLimit, *, wait_s: float) -> StreamCut:
        opened = self._open()
        tail = self._tail = self._tail or Tail(opened.store.catalog, opened.store.runtime)
        clock = opened.store.runtime.clock
        deadline = clock.monotonic() + wait_s
        view = self._view(offset.cut.stream)
        while True:
            seen = tail.seen()
            end = self._end_of_batch(view, offset.cut, limit)
            left = deadline - clock.monotonic()
            if end != offset.cut or left <= 0:
                return end
            tail.wait(seen, left)
            view = self._view(offset.cut.stream)

    def _end_of_batch(self, view: StreamView, start: StreamCut, limit: ReadLimit) -> StreamCut:
        start = cuts.check_cut(view, self._readable(view, start))
        times = StoreTimes(self._open(), view)
        return end_of_batch(view, start, self._limits(limit), times, stop=self._stop(view))

    def _readable(self, view: StreamView, cut: StreamCut) -> StreamCut:
        """The cut, or where the stream begins by now, if what was truncated meanwhile is no failure."""
        if self._options.lossy and cuts.below_head(view, cut.as_dict()):
            return cuts.furthest(view, cut, cuts.head_cut(view))
        return cut

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        events, size = self._options.events_max, self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            events = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return Limits(events, size)

    def _stop(self, view: StreamView) -> StreamCut | None:
        """Where this run of the query ends, or None."""
        if self._end is None and self._options.end is not None:
            self._end = self._last(view, self._options.end)
        if self._end is None and self._available_now:
            self._end = cuts.tail_cut(view)
        return self._end
