"""Making a raw stream that was never written to a byte stream."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.byte_stream import BYTES, is_byte_stream, may_hold_bytes, no_byte_stream
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.streams.segments import open_segment


def make_byte_stream(txn: Writing, view: StreamView, now: Micros) -> None:
    """Give the stream the columns of a byte stream, unless it has them. Raises InvalidArgument for a stream that held an
    event or was scaled.

    Its log is replaced by a new one, so that an event on its way to the old one is refused: its writer, which still knows
    the raw stream, then finds out.
    """
    info = view.info
    if is_byte_stream(info):
        return
    if not may_hold_bytes(view):
        raise no_byte_stream(info)
    (segment,) = view.current
    old = view.open_log(segment.id)
    assert old is not None, "the stream is not sealed"
    txn.update_log(replace(view.logs[old], sealed=True))
    txn.drop_spans(info.id, segment.id)
    log = view.logs[old]
    new = open_segment(txn, info.id, segment, appended_at=log.appended_at, fence=log.fence)
    txn.copy_fences(old, new)
    txn.update_stream(replace(info, schema=BYTES, schema_version=info.schema_version + 1, version=info.version + 1))
    txn.add_change(info.id, "evolved", {"columns": BYTES.columns.names}, now=now)
