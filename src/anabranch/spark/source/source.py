"""Streams as a Spark source: `spark.read` and `spark.readStream` with `format("anabranch")`.

Reading yields the chosen columns, then `_segment` (bigint, `SegmentId.packed`), `_offset` (bigint) and `_appended`
(timestamp), as Arrow batches. Types that Spark lacks are widened or refused; see `anabranch.spark.types`. The options
are described in `anabranch.spark.option_list`.

Only options select rows. `pushFilters` is not implemented: Spark 4.3 caches its result and reuses it for later queries
over the same view, which then return wrong rows (`tests/spark/test_pushfilters_bug.py`).

Spark creates readers in several processes and pickles them, so they hold only options and open the store on first use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from anabranch.core.shed_rule import ShedRule
from anabranch.errors import InvalidArgument, SchemaMismatch, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.options import ReadOptions, from_json_option
from anabranch.spark.shared_streams import shared_folder
from anabranch.spark.source.batch_end import BatchLimits, StoreTimes, batch_load, end_of_batch
from anabranch.spark.source.broker_reads import PollingTail
from anabranch.spark.source.following import AwaitedStandby, FollowedBatches, FollowedRun, poll_s
from anabranch.spark.source.markers import MarkerOption, Markers, marker_row
from anabranch.spark.source.offsets import SourceOffset
from anabranch.spark.source.reads import (
    WATERMARK,
    RangeReads,
    StreamReads,
    complete_cut,
    raised_to_head,
    read_ranges,
    reads_of,
    with_shed_columns,
)
from anabranch.spark.source.scan import ScanRange, columns_to_read, only_keys, split_into_tasks
from anabranch.spark.source.shared_reads import SharedReads
from anabranch.spark.stores import chosen_places, open_store
from anabranch.spark.types import ADDED, SHED_DRAW, SHED_RATE, spark_columns, spark_schema
from anabranch.spark.worker_access import WorkerAccess
from anabranch.store import Store
from anabranch.store.engine_api import Tail

__all__ = ["BatchReader", "PipelineSource", "StreamReader", "schema"]

# Spark's source process does not know the core count of other machines; twice the local count balances the load.
_TASKS: Final = 2 * (os.cpu_count() or 1)

_Offset = dict[str, str]


@dataclass(frozen=True, slots=True)
class PipelineSource:
    """How a statement of a pipeline reads a source: the option `pipelineSource`.

    By `markers` the source advances the watermark without an event, to close windows or while it is idle. With `follow`
    its batches end where those of the followed run end, as in a hot standby. `await_standby` is the place of the
    query's checkpoint, where its hot standby notes its progress: batches wait a little for the standby. With `shed`
    only a part of the events is read, with their keep rate in `_shed_rate`; with `shed_draw` all are, each with a
    random number in `_shed_draw`, by which the query decides which it keeps."""

    markers: MarkerOption | None = None
    follow: FollowedRun | None = None
    await_standby: str | None = None
    shed: ShedRule | None = None
    shed_draw: bool = False


def schema(options: Mapping[str, str]) -> StructType:
    """The columns that reading yields. Raises InvalidArgument and its subclasses, StoreNotFound, StreamNotFound."""
    asked = ReadOptions.of(options)
    reads = reads_of(open_store(asked.store))
    reads.freshen(asked.stream)
    stored = reads.view(asked.stream_id or asked.stream).info.schema
    columns = spark_columns(columns_to_read(stored, asked.columns))
    return spark_schema(pa.schema([*columns, *ADDED, *_shed_columns(_pipeline_source(asked))]))


def _pipeline_source(asked: ReadOptions) -> PipelineSource:
    text = asked.pipeline_source
    return PipelineSource() if text is None else from_json_option(PipelineSource, "pipelineSource", text)


def _shed_columns(pipeline: PipelineSource) -> tuple[pa.Field, ...]:
    if pipeline.shed is None:
        return ()
    return (SHED_RATE, SHED_DRAW) if pipeline.shed_draw else (SHED_RATE,)


def _names(schema: StructType, pipeline: PipelineSource) -> tuple[str, ...]:
    """The stored columns of `schema`. Raises InvalidArgument if it does not end with the columns that the source adds,
    as in a schema that the user wrote."""
    names = schema.fieldNames()
    added = [field.name for field in (*ADDED, *_shed_columns(pipeline))]
    if names[-len(added) :] != added:
        raise InvalidArgument("the schema is the stream's: leave out .schema(…) and use option 'columns'")
    return tuple(names[: -len(added)])


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def _between(view: StreamView, start: StreamCut, end: StreamCut) -> Iterator[ScanRange]:
    return (ScanRange(*each) for each in cuts.ranges(view, cuts.check_cut(view, start), end))


class RangePartition(InputPartition):
    """The ranges that one task reads, and the part of their events that is kept."""

    def __init__(self, stream: StreamId, ranges: tuple[ScanRange, ...], keep_rate: float) -> None:
        super().__init__(None)
        self.stream = stream
        self.ranges = ranges
        self.keep_rate = keep_rate


class MarkerPartition(InputPartition):
    """A task that yields one marker."""

    def __init__(self, stream: StreamId, time_us: int) -> None:
        super().__init__(None)
        self.stream = stream
        self.time_us = time_us


class _SparkSource:
    """The common part of both readers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        asked = ReadOptions.of(options)
        self._options = replace(asked, store=chosen_places(asked.store))
        self._pipeline = _pipeline_source(asked)
        self._names = _names(schema, self._pipeline)
        self._types = _types(schema)  # the types that Spark expects, as of the query's start
        self._access = WorkerAccess(self._options.store)
        self._complete: StreamCut | None = None  # the end of a read that ends at the watermark

    def _open(self) -> Store:
        return open_store(self._options.store)

    def _reads(self) -> StreamReads:
        return reads_of(self._open())

    def _shared_reads(self, stream: StreamId) -> RangeReads:
        """How a task reads: through the folder that the machine's tasks share, if there is one."""
        folder = shared_folder(stream)
        # Events of an encrypted store are not written to the shared folder, which is not encrypted.
        if folder is None or self._open().runtime.sealer is not None:
            return self._reads()
        return SharedReads(self._reads(), folder)

    def _view(self, stream: StreamId | None = None) -> StreamView:
        stream = stream or self._options.stream_id
        self._reads().freshen(self._options.stream)
        if self._options.end == WATERMARK and self._complete is None:
            self._complete = complete_cut(self._open(), self._options.stream)
        try:
            return self._as_expected(self._reads().view(stream or self._options.stream))
        except StreamNotFound:
            if stream is None:
                raise
        raise InvalidArgument(
            f"stream '{self._options.stream}' is not the one that this query began with: it was deleted or recreated"
        )

    def _as_expected(self, view: StreamView) -> StreamView:
        found = _types(spark_schema(spark_columns(columns_to_read(view.info.schema, self._names))))
        for name, kind in found.items():
            if kind != self._types[name]:
                raise SchemaMismatch(
                    f"column '{name}' of '{view.info.name}' is {kind} now, and was {self._types[name]} when this query "
                    "began: start it again",
                    column=name,
                )
        return view

    def _place(self, view: StreamView, place: str) -> StreamCut:
        return self._reads().place(view, place, self._options.by)

    def _last(self, view: StreamView, place: str) -> StreamCut:
        """The cut of a place given as the end of reading."""
        if place != WATERMARK:
            return self._place(view, place)
        assert self._complete is not None, "it was asked for ahead of the view"
        return raised_to_head(view, self._complete)

    def _deal(self, view: StreamView, ranges: Iterable[ScanRange], keep_rate: float = 1.0) -> list[RangePartition]:
        wanted = only_keys(view, ranges, self._options.keys)
        return [RangePartition(view.info.id, share, keep_rate) for share in split_into_tasks(wanted, tasks=_TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the events of its ranges, or a marker."""
        if isinstance(partition, MarkerPartition):
            with self._access.explained():
                row = marker_row(self._open(), partition.stream, self._names, partition.time_us)
                yield from self._with_shed_columns(iter([row]), 1.0)
        if isinstance(partition, RangePartition):  # for a read without partitions Spark passes one of its own
            options = self._options
            with self._access.explained():
                reads = self._shared_reads(partition.stream)
                found = read_ranges(
                    reads, partition.stream, partition.ranges, self._names, options.keys, lossy=options.lossy
                )
                yield from self._with_shed_columns(found, partition.keep_rate)

    def _with_shed_columns(self, batches: Iterator[pa.RecordBatch], keep_rate: float) -> Iterator[pa.RecordBatch]:
        if self._pipeline.shed is None:
            return batches
        return with_shed_columns(batches, keep_rate, draw=self._pipeline.shed_draw)


class BatchReader(_SparkSource, DataSourceReader):
    """Reads a stream once: what is between start and end when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Spark's API. Raises Truncated, InvalidArgument and its subclasses."""
        if self._options.ranges is not None:
            stream, ranges = self._options.ranges
            return self._deal(
                self._view(StreamId(stream)), (ScanRange(SegmentId.unpack(s), *edges) for s, *edges in ranges)
            )
        view = self._view()
        start = self._place(view, self._options.start)
        end = cuts.tail_cut(view) if self._options.end is None else self._last(view, self._options.end)
        return self._deal(view, _between(view, start, end))


class StreamReader(_SparkSource, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches.

    One instance exists for a whole run of a query, in a process of its own; copies of it in tasks only `read`.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._first: SourceOffset | None = None
        self._latest_start: SourceOffset | None = (
            None  # of the latest batch; Spark calls no initialOffset for a restarted query
        )
        self._end: StreamCut | None = None
        self._idle = False
        self._available_now = False
        self._tail: Tail | PollingTail | None = None
        self._markers = None if self._pipeline.markers is None else Markers(self._pipeline.markers)
        self._follower: FollowedBatches | None = None
        self._standby: AwaitedStandby | None = None

    def initialOffset(self) -> _Offset:  # noqa: N802
        """Where the first batch begins."""
        if self._first is None:
            view = self._view()
            cut = self._place(view, self._options.start)
            self._first = SourceOffset(self._options.stream, cut, cut)
        return self._first.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options. With two limits Spark is given the one for events, and both are applied."""
        if self._options.events_max is not None:
            return ReadMaxRows(self._options.events_max)
        return ReadAllAvailable() if self._options.bytes_max is None else ReadMaxBytes(self._options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the current tail as the end of this run."""
        self._available_now = True
        self._stop(self._view())

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:  # noqa: N802
        """The end of the batch that begins at `start`; `start` itself if there are no new events and no marker is due.

        Waits for new events, unless the previous call returned some. In that case Spark only asks whether to run the
        batch without events that closes windows, and waiting would delay results.
        """
        offset = self._latest_start = SourceOffset.from_json(start)
        follower = self._followed()
        if follower is not None:
            followed = follower.end_of_batch(offset)
            if followed is not None:
                return followed.to_json()
            if (pause_s := follower.pause_s()) > 0 and not self._idle:
                self._idle = True
                return start
            time.sleep(pause_s)
        if (standby := self._awaited()) is not None:
            standby.let_catch_up()
        wait = self._idle and not self._available_now
        end, keep_rate = self._next(offset, limit, wait_s=self._options.poll_s if wait else 0.0)
        self._idle = end == offset.cut
        if not self._idle:
            if follower is not None:
                follower.planned()
            return offset.at(end, keep_rate).to_json()
        marker = None if self._markers is None else self._markers.due(self._open(), offset, once=self._available_now)
        if marker is None:
            return start
        self._idle = False
        return offset.marked(marker).to_json()

    def _followed(self) -> FollowedBatches | None:
        if self._follower is None and self._pipeline.follow is not None:
            self._follower = FollowedBatches(self._pipeline.follow, self._open().runtime)
        return self._follower

    def _awaited(self) -> AwaitedStandby | None:
        checkpoint = self._pipeline.await_standby
        if self._standby is None and checkpoint is not None:
            folder = checkpoint_folder(checkpoint, self._open().runtime)
            self._standby = AwaitedStandby(folder, poll_s(checkpoint))
        return self._standby

    def reportLatestOffset(self) -> _Offset | None:  # noqa: N802
        """The tail, from which Spark's progress computes the query's lag."""
        known = self._latest_start or self._first
        return None if known is None else known.at(cuts.tail_cut(self._view(known.cut.stream))).to_json()

    def partitions(self, start: _Offset, end: _Offset) -> Sequence[InputPartition]:
        """Spark's API. Raises Truncated if the stream's head is after the start and `failOnDataLoss` is not false."""
        until = SourceOffset.from_json(end)
        before = SourceOffset.from_json(start)
        view = self._view(until.cut.stream)
        begin = self._readable(view, until.start_of_batch(before))
        between = _between(view, begin, self._readable(view, until.cut))
        dealt: list[InputPartition] = [*self._deal(view, between, until.keep_rate)]
        if until.marker is not None and until.marker != before.marker:
            dealt.append(MarkerPartition(view.info.id, until.marker.time_us))
        return dealt

    def commit(self, end: _Offset) -> None:
        """Does nothing: the reader keeps no state for finished batches."""

    def stop(self) -> None:
        """Does nothing: the reader holds no resources that must be released."""

    def _next(self, offset: SourceOffset, limit: ReadLimit, *, wait_s: float) -> tuple[StreamCut, float]:
        """The end of the batch after `offset`, and its keep rate."""
        tail = self._tail = self._tail or self._reads().tail()
        clock = self._open().runtime.clock
        deadline = clock.monotonic() + wait_s
        view = self._view(offset.cut.stream)
        while True:
            seen = tail.generation()
            end, keep_rate = self._end_of_batch(view, offset.cut, limit)
            left = deadline - clock.monotonic()
            if end != offset.cut or left <= 0:
                return end, keep_rate
            tail.wait(seen, left)
            view = self._view(offset.cut.stream)

    def _end_of_batch(self, view: StreamView, start: StreamCut, limit: ReadLimit) -> tuple[StreamCut, float]:
        start = cuts.check_cut(view, self._readable(view, start))
        times = StoreTimes(self._reads(), view)
        limits, stop, rule = self._limits(limit), self._stop(view), self._pipeline.shed
        end = end_of_batch(view, start, limits, times, stop=stop)
        if rule is None or end == start:
            return end, 1.0
        keep_rate = rule.keep_rate(batch_load(rule, view, start, end, times, now=self._open().runtime.clock.now()))
        if keep_rate < 1 and limits != BatchLimits():
            # Limits count only kept events, so that a batch reaches further when load is shed.
            end = end_of_batch(view, start, limits.scaled(1 / keep_rate), times, stop=stop)
        return end, keep_rate

    def _readable(self, view: StreamView, cut: StreamCut) -> StreamCut:
        """The cut; or, if `failOnDataLoss` is false and the cut was truncated, the furthest of the cut and the head."""
        if self._options.lossy and cuts.below_head(view, cut.as_dict()):
            if not cut.as_dict().keys() <= view.segments.keys():
                cut = cuts.clamp_to_head(view, cut)  # its segments were removed when the stream's content was replaced
            return cuts.union(view, cut, cuts.head_cut(view))
        return cut

    def _limits(self, limit: ReadLimit) -> BatchLimits:
        if isinstance(limit, ReadAllAvailable):
            return BatchLimits()
        events, size = self._options.events_max, self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            events = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return BatchLimits(events, size)

    def _stop(self, view: StreamView) -> StreamCut | None:
        """Where this run of the query ends, or None."""
        if self._end is None and self._options.end is not None:
            self._end = self._last(view, self._options.end)
        if self._end is None and self._available_now:
            self._end = cuts.tail_cut(view)
        return self._end
