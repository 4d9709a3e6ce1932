"""Copying a stream within a store: new names and spans over the same logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anabranch.catalog.port import Checkpointed, Writing
from anabranch.core.copy import Copied
from anabranch.core.stretch import Stretch, plan_stretch
from anabranch.errors import StreamExists
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.find import cuts_of, named, need_info, need_view
from anabranch.streams.origins import ahead_of_origins, part_of, record_origin
from anabranch.streams.scope import need_scope

COPIED: Final = "copied"  # the kind of pieces that say what a stream was copied from, by the stream's id


def copy_stream(txn: Writing, source: StreamRange, target: StreamName, stream: StreamId, now: Micros) -> Copied:
    """Make `target`, with the id `stream`, view what `source` holds. Costs as many rows as the source has segments and
    spans.

    The copy is open, though the source may be sealed: its current segments go on in new logs. Writers' progress and
    fences stay behind. Asked again with the same arguments, nothing changes. Raises StreamExists where `target` is
    anything else, StreamNotFound, ScopeNotFound, InvalidCut, Truncated.
    """
    txn.ahead(scopes=[target.scope], streams=[named(source), target])
    info = need_info(txn, named(source))
    ahead_of_origins(txn, [info.id, stream])
    txn.ahead(logs_of=[info.id])
    view = need_view(txn, info.id)
    need_scope(txn, target.scope)
    return copy_view(txn, view, source, target, stream, now)


def copy_view(
    txn: Writing, view: StreamView, source: StreamRange, target: StreamName, stream: StreamId, now: Micros
) -> Copied:
    """The same of a stream that was looked at in this transaction, to a scope that is there."""
    asked = {"start": _said(source.start), "end": _said(source.end)}
    present = txn.stream(target)
    if present is not None and present.name == target:
        made = txn.piece(COPIED, f"{present.id:016x}")
        if made is None or made.value["source"] != f"{view.info.id:016x}" or made.value["asked"] != asked:
            raise StreamExists(str(target))
        return Copied.from_json(dict(made.value))
    if present is not None:
        raise StreamExists(str(target), str(present.name))  # an alias
    stretch = plan_stretch(view, *cuts_of(source))
    _insert(txn, replace(view.info, id=stream, name=target, created_at=now, sealed=False, version=1), view.info)
    put_stretch(txn, stream, stretch)
    copied = Copied(stream, view.info.id, stretch.start, stretch.end)
    txn.put_piece(Checkpointed(COPIED, f"{stream:016x}", {**copied.to_json(), "asked": asked}))
    record_origin(txn, stream, "copied", [part_of(txn, stretch)], now)
    txn.add_change(stream, "copied", {"name": str(target), **copied.to_json()}, now=now)
    return copied


def put_stretch(txn: Writing, stream: StreamId, stretch: Stretch) -> None:
    """Give a new stream the segments of a stretch; those that are current go on in logs of their own."""
    for piece in stretch.pieces:
        txn.put_segment(stream, piece.segment)
        for span in piece.spans:
            txn.put_span(stream, span)
        if piece.segment.retired is None:
            _go_on(txn, stream, piece.segment, piece.stop, stretch.appended_at)


def _go_on(txn: Writing, stream: StreamId, segment: Segment, offset: int, appended_at: Micros) -> None:
    # Append times rise along a segment, so the new log's start where those of the source have come to.
    log = txn.new_log(stream, appended_at=appended_at)
    txn.put_span(stream, Span(segment.id, offset, log, 0, None))


def _insert(txn: Writing, info: StreamInfo, source: StreamInfo) -> None:
    """Insert the stream with all the schemas that the source has had, since versions go on from there."""
    schemas = [*(txn.schema(source.id, version) for version in range(1, info.schema_version)), info.schema]
    txn.insert_stream(replace(info, schema=schemas[0], schema_version=1))
    for version, schema in enumerate(schemas[1:], 2):
        txn.update_stream(replace(info, schema=schema, schema_version=version))


def _said(cut: StreamCut | Edge | str) -> str:
    return cut.value if isinstance(cut, Edge) else str(cut)
