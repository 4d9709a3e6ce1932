"""Copying a stream within a store: new names and spans over the same logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.lineage import COPIED, CopyRecord
from anabranch.catalog.state.streams import BYTE_HEAD
from anabranch.core.byte_stream import is_byte_stream
from anabranch.core.copy import CopyResult, Filtered
from anabranch.core.stream_slice import SegmentSlice, StreamSlice, plan_slice
from anabranch.errors import StreamExists
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo, StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.streams.directory.find import need_info, need_view, range_cuts, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lineage.origins import origin_part, prefetch_origins, record_origin
from anabranch.streams.segments import open_log


def copy_stream(txn: Writing, source: StreamRange, target: StreamName, stream: StreamId, now: Micros) -> CopyResult:
    """Create `target`, with the id `stream`, as a view of what `source` holds. Costs as many rows as the source has
    segments and spans.

    The copy is open even if the source is sealed: its current segments continue in new logs. Writers' progress and
    fences are not copied. A repeated call with the same arguments changes nothing. Raises StreamExists where `target`
    is any other stream, StreamNotFound, ScopeNotFound, InvalidCut, Truncated.
    """
    txn.prefetch(scopes=[target.scope], streams=[range_stream(source), target])
    info = need_info(txn, range_stream(source))
    prefetch_origins(txn, [info.id, stream])
    txn.prefetch(logs_of=[info.id])
    view = need_view(txn, info.id)
    need_scope(txn, target.scope)
    return copy_view(txn, view, source, target, stream, now)


def copy_view(
    txn: Writing, view: StreamView, source: StreamRange, target: StreamName, stream: StreamId, now: Micros
) -> CopyResult:
    """Like `copy_stream`, for a view that was read in this transaction, into an existing scope."""
    asked = copy_arguments(source)
    if (made := existing_copy(txn, view.info.id, target, asked)) is not None:
        return made
    part_slice = plan_slice(view, *range_cuts(source))
    copied = insert_copy(txn, part_slice, target, stream, asked, now)
    if is_byte_stream(view.info) and (byte_head := txn.state(BYTE_HEAD, view.info.id)) is not None:
        txn.put_state(BYTE_HEAD, stream, byte_head)
    return copied


def copy_arguments(source: StreamRange, **others: object) -> dict[str, object]:
    """The arguments of a copy, by which the same call is recognized."""
    return {**source.places, **others}


def existing_copy(txn: Reading, source: StreamId, target: StreamName, asked: Mapping[str, object]) -> CopyResult | None:
    """The existing copy, if it was made from the same stream with the same arguments; None if the name is free. Raises
    StreamExists where it is the name, or an alias, of another stream."""
    present = txn.stream(target)
    if present is None:
        return None
    if present.name != target:
        raise StreamExists(str(target), str(present.name))  # an alias
    record = txn.state(COPIED, present.id)
    if record is None or record.result.source != source or record.asked != asked:
        raise StreamExists(str(target))
    return record.result


def insert_copy(
    txn: Writing,
    part_slice: StreamSlice,
    target: StreamName,
    stream: StreamId,
    asked: Mapping[str, object],
    now: Micros,
    *,
    filtered: Filtered | None = None,
) -> CopyResult:
    """Create `target`, with the id `stream`, as a view of a slice, in an existing scope. `asked` are the arguments of
    the copy, and `filtered` describes the events of the slice that a filter kept."""
    info = part_slice.view.info
    schemas = [*schemas_of(txn, info.id, info.schema_version - 1), info.schema]
    insert_schemas(txn, replace(info, id=stream, name=target, created_at=now, sealed=False, version=1), schemas)
    insert_slice(txn, stream, part_slice)
    copied = CopyResult(stream, info.id, part_slice.start, part_slice.end, filtered)
    record_copy(txn, copied, target, asked, origin_part(txn, part_slice), now)
    return copied


def record_copy(
    txn: Writing, copied: CopyResult, target: StreamName, asked: Mapping[str, object], origin: OriginPart, now: Micros
) -> None:
    """Record what the stream is a copy of, and announce it."""
    txn.put_state(COPIED, copied.copy, CopyRecord(copied, asked))
    record_origin(txn, copied.copy, "copied", [origin], now)
    detail = replace(copied, filtered=None).to_json()  # `filtered` may list thousands of ranges
    if copied.filtered is not None:
        detail |= {"where": copied.filtered.where, "events": copied.filtered.events}
    txn.add_change(copied.copy, "copied", {"name": str(target), **detail}, now=now)


def insert_slice(txn: Writing, stream: StreamId, part_slice: StreamSlice) -> None:
    """Insert the segments of a stream slice into a new stream; the current ones continue in new logs."""
    for segment_slice in part_slice.segments:
        txn.put_segment(stream, segment_slice.segment)
        for span in segment_slice.spans:
            txn.put_span(stream, span)
        if segment_slice.segment.retired is None:
            log = open_log(txn, stream, segment_slice.segment.id, segment_slice.stop, part_slice.appended_at)
            if (position := _byte_position(part_slice.view, segment_slice)) is not None:
                txn.update_log(replace(txn.logs([log])[log], event_high=position))


def _byte_position(view: StreamView, segment_slice: SegmentSlice) -> Micros | None:
    """The byte position at which the copy of a byte stream continues, even once all copied events are truncated. None
    for a stream that is not a byte stream, and where the catalog doesn't know the position."""
    segment = segment_slice.segment.id
    spans = view.spans.get(segment)
    if not is_byte_stream(view.info) or not spans or segment_slice.stop != view.length(segment):
        return None
    log = view.logs[spans[-1].log]
    return log.event_high if spans[-1].stop in (None, log.length) else None


def schemas_of(txn: Reading, stream: StreamId, versions: int) -> list[StreamSchema]:
    """The first `versions` schemas of a stream, the oldest first."""
    return [txn.schema(stream, version) for version in range(1, versions + 1)]


def insert_schemas(txn: Writing, info: StreamInfo, schemas: Sequence[StreamSchema]) -> None:
    """Insert a stream with all schemas of its source, the oldest first, since its versions continue from there."""
    txn.insert_stream(replace(info, schema=schemas[0], schema_version=1))
    for version, schema in enumerate(schemas[1:], 2):
        txn.update_stream(replace(info, schema=schema, schema_version=version))
