"""Where a job writes: an internal stream of its target with one log per range, which finally becomes the copy.

It is an ordinary stream, so everything that inspects a store recognizes it. Its segments share the key space evenly,
and no writer ever writes to them. It has the id that the copy will have, which is why its logs carry the right schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.replacement import RewrittenRuns
from anabranch.core.stream_slice import SegmentSlice, StreamSlice
from anabranch.errors import CorruptCatalog
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView
from anabranch.streams.algebra.copy import insert_schemas, insert_slice, schemas_of
from anabranch.streams.directory.find import need_view
from anabranch.streams.segments import open_segment
from anabranch.transfer.jobs.record import JobRange, JobSource, SourcePlan


def stage_name(target: StreamName, job: str, number: int) -> StreamName:
    """The name of a stage. It is in the target's scope, so that the scope can't be deleted meanwhile, and internal, so
    that lists don't show it."""
    return StreamName(target.scope, f"_job.{job}.{number}")


def open_stage(
    txn: Writing, name: StreamName, stream: StreamId, schemas: Sequence[StreamSchema], logs: int, now: Micros
) -> list[LogId]:
    """Create the internal stream with all the schemas of the source, and this many logs."""
    count = max(logs, 1)
    insert_schemas(txn, StreamInfo(stream, name, schemas[0], 1, {}, now, False, 1, 0, count), schemas)
    return [
        open_segment(txn, stream, Segment(SegmentId(0, number), part, None, 0), appended_at=Micros(0), fence=0)
        for number, part in enumerate(FULL_KEY_RANGE.split(count))
    ]


def close_stage(
    txn: Writing, part: JobSource, plan: SourcePlan, name: StreamName, now: Micros, *, sieved: bool = False
) -> None:
    """Replace the stage by the copy `name`, under the same id: the source's segments over the logs of their ranges.
    Current segments continue in new logs. If events were left out (`sieved`), the offsets of each segment begin at
    0."""
    view = need_view(txn, part.stage)
    remove_stage(txn, view)
    schemas = schemas_of(txn, part.stage, plan.schema_version)
    info = StreamInfo(part.stage, name, schemas[0], 1, plan.tags, now, False, 1, plan.epoch, plan.next_number)
    insert_schemas(txn, info, schemas)
    lengths = {log.id: log.length for log in view.logs.values()}
    of_segment: dict[SegmentId, list[JobRange]] = {}
    for each in plan.ranges:
        of_segment.setdefault(each.segment, []).append(each)
    if sieved:
        pieces = tuple(_slice_of_kept(segment, of_segment.get(segment.id, ()), lengths) for segment, _ in plan.segments)
    else:
        pieces = tuple(
            SegmentSlice(segment, stop, tuple(whole_span(each, view) for each in of_segment.get(segment.id, ())))
            for segment, stop in plan.segments
        )
    insert_slice(txn, part.stage, StreamSlice(view, part.start, part.end, pieces, plan.appended_at))


def drop_stage(txn: Writing, part: JobSource) -> None:
    """Discard what was written; the collector removes it."""
    view = txn.view(part.stage)
    if view is not None:
        remove_stage(txn, view)


def remove_stage(txn: Writing, view: StreamView) -> None:
    """Remove the stage; its logs take no more events."""
    for log in view.logs.values():
        if log.stream == view.info.id and not log.sealed:  # other logs belong to the streams that it is a copy of
            txn.update_log(replace(log, sealed=True))
    txn.drop_stream(view.info.id)


def whole_span(range_: JobRange, stage: StreamView) -> Span:
    """The span over the log of a range. Raises CorruptCatalog if it does not hold the whole range."""
    held = stage.logs[range_.log].length
    if held != range_.events:
        raise CorruptCatalog(f"log {range_.log} holds {held} of {range_.events} events", "logs", str(range_.log))
    return Span(range_.segment, range_.start, range_.log, 0, range_.events)


def _slice_of_kept(segment: Segment, ranges: Sequence[JobRange], lengths: dict[LogId, int]) -> SegmentSlice:
    spans, offset = [], 0
    for each in ranges:
        if lengths[each.log]:
            spans.append(Span(segment.id, offset, each.log, 0, lengths[each.log]))
            offset += lengths[each.log]
    return SegmentSlice(replace(segment, head=0), offset, tuple(spans))


# for jobs that rewrite portions of a stream


def open_portions(txn: Writing, name: StreamName, ident: StreamId, now: Micros) -> None:
    """Create an internal stream that views the logs a job has written so far, so that they are not collected."""
    txn.insert_stream(StreamInfo(ident, name, RAW, 1, {}, now, True, 1, 0, 1))
    txn.put_segment(ident, Segment(SegmentId(0, 0), FULL_KEY_RANGE, None, 0))


def view_portion(txn: Writing, stage: StreamView, portion: RewrittenRuns) -> None:
    """Have the stage view a portion, so that it is not collected. Each is a segment of its own, with one span: several
    short spans of a segment would be flattened into another log."""
    info = stage.info
    for segment in stage.current:
        txn.put_segment(info.id, replace(segment, retired=info.epoch + 1))
    segment = Segment(SegmentId(info.epoch + 1, info.next_number), FULL_KEY_RANGE, None, 0)
    txn.put_segment(info.id, segment)
    txn.put_span(info.id, Span(segment.id, 0, portion.log, 0, portion.events))
    txn.update_stream(replace(info, version=info.version + 1, epoch=info.epoch + 1, next_number=info.next_number + 1))
