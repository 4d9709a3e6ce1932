"""An internal stream that views the logs a job has written so far, so that they are not collected."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.replacement import RewrittenRuns
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView


def open_portions(txn: Writing, name: StreamName, ident: StreamId, now: Micros) -> None:
    """Create the stream."""
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
