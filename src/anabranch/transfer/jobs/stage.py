"""Where a job writes: an internal stream of its target with one log per range, which finally becomes the copy.

It is an ordinary stream, so everything that inspects a store recognizes it. Its segments share the key space evenly,
and no writer ever writes to them. It has the id that the copy will have, which is why its logs carry the right schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.stream_slice import SegmentSlice, StreamSlice
from anabranch.errors import CorruptCatalog
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, Span, StreamInfo
from anabranch.streams.algebra.copy import insert_slice
from anabranch.streams.directory.find import need_view
from anabranch.streams.segments import open_segment
from anabranch.transfer.jobs.record import JobRange, JobSource, SourcePlan


def stage_name(target: StreamName, job: str, number: int) -> StreamName:
    """In the target's scope, so that the scope can't be deleted meanwhile; internal, so that lists don't show it."""
    return StreamName(target.scope, f"_job.{job}.{number}")


def open_stage(
    txn: Writing, name: StreamName, stream: StreamId, schemas: Sequence[StreamSchema], logs: int, now: Micros
) -> list[LogId]:
    """Create the internal stream with all the schemas of the source, and this many logs."""
    count = max(logs, 1)
    info = StreamInfo(stream, name, schemas[0], 1, {}, now, False, 1, 0, count)
    txn.insert_stream(info)
    for version, schema in enumerate(schemas[1:], 2):
        txn.update_stream(replace(info, schema=schema, schema_version=version))
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
    for log in view.logs.values():
        txn.update_log(replace(log, sealed=True))
    txn.drop_stream(part.stage)
    schemas = [txn.schema(part.stage, version) for version in range(1, plan.schema_version + 1)]
    info = StreamInfo(part.stage, name, schemas[0], 1, plan.tags, now, False, 1, plan.epoch, plan.next_number)
    txn.insert_stream(info)
    for version, schema in enumerate(schemas[1:], 2):
        txn.update_stream(replace(info, schema=schema, schema_version=version))
    lengths = {log.id: log.length for log in view.logs.values()}
    of_segment: dict[SegmentId, list[JobRange]] = {}
    for each in plan.ranges:
        of_segment.setdefault(each.segment, []).append(each)
    if sieved:
        pieces = tuple(_sieved(segment, of_segment.get(segment.id, ()), lengths) for segment, _ in plan.segments)
    else:
        pieces = tuple(
            _piece(segment, stop, of_segment.get(segment.id, ()), lengths) for segment, stop in plan.segments
        )
    insert_slice(txn, part.stage, StreamSlice(view, part.start, part.end, pieces, plan.appended_at))


def drop_stage(txn: Writing, part: JobSource) -> None:
    """Discard what was written; the collector removes it."""
    view = txn.view(part.stage)
    if view is None:
        return
    for log in view.logs.values():
        if log.stream == part.stage:  # others belong to the streams that it is a copy of
            txn.update_log(replace(log, sealed=True))
    txn.drop_stream(part.stage)


def _piece(segment: Segment, stop: int, ranges: Sequence[JobRange], lengths: dict[LogId, int]) -> SegmentSlice:
    spans = []
    for each in ranges:
        if lengths[each.log] != each.events:
            raise CorruptCatalog(
                f"log {each.log} holds {lengths[each.log]} of {each.events} events", "logs", str(each.log)
            )
        spans.append(Span(segment.id, each.start, each.log, 0, each.events))
    return SegmentSlice(segment, stop, tuple(spans))


def _sieved(segment: Segment, ranges: Sequence[JobRange], lengths: dict[LogId, int]) -> SegmentSlice:
    spans, offset = [], 0
    for each in ranges:
        if lengths[each.log]:
            spans.append(Span(segment.id, offset, each.log, 0, lengths[each.log]))
            offset += lengths[each.log]
    return SegmentSlice(replace(segment, head=0), offset, tuple(spans))
