"""The transaction in which archived or attached files become a stream: names, segments, spans, logs and extents at
once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.lineage import COPIED, CopyRecord
from anabranch.core.compaction import PARQUET
from anabranch.core.copy import CopyResult
from anabranch.core.invariants import stream_violations
from anabranch.errors import CorruptArchive, StreamExists
from anabranch.model.append import BlobLocation
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import Extent, Span, StreamInfo
from anabranch.streams.algebra.copy import insert_schemas
from anabranch.streams.directory.find import need_free
from anabranch.streams.directory.scopes import create_scope, need_scope
from anabranch.streams.lineage.origins import record_origin
from anabranch.streams.names.alias import add_alias
from anabranch.streams.retention.stored import put_policy
from anabranch.streams.segments import open_log
from anabranch.transfer.archives.format import METADATA, ArchivedFile, ArchivedSegment, ArchivedStream

SpansOf = Callable[[ArchivedSegment], Sequence[Span]]  # in offset order, over sealed logs; none for an empty segment


class FileLocation(NamedTuple):
    """Where the store finds a data file: its blob's key, size and checksum, and the row at which it begins."""

    key: str
    size: int
    checksum: int
    row: int = 0


class ImportTarget(NamedTuple):
    """The target of an imported stream: its `name`, its `id` if it is created, and the arguments `asked` (JSON), by
    which the same import is recognized. `place` is for display. `retention` imports its policy, `aliases` those of its
    aliases that are free. `scope` holds the tags of its scope; None if a missing scope is not created."""

    name: StreamName
    id: StreamId
    asked: Mapping[str, Any]
    place: str
    retention: bool = False
    aliases: bool = False
    scope: Mapping[str, str] | None = None


def earlier_import(txn: Reading, import_target: ImportTarget) -> CopyResult | None:
    """The result of the same import made before, or None if the name is free. Raises StreamExists if the name belongs
    to another stream, ScopeNotFound."""
    if import_target.scope is None:
        need_scope(txn, import_target.name.scope)
    present = txn.stream(import_target.name)
    if present is None:
        return None
    made = txn.state(COPIED, present.id) if present.name == import_target.name else None
    if made is None or made.asked != import_target.asked:
        need_free(txn, import_target.name)
        raise StreamExists(str(import_target.name))
    return made.result


def adopt(
    txn: Writing, stream: ArchivedStream, import_target: ImportTarget, now: Micros, *, spans_of: SpansOf
) -> CopyResult:
    """Create the stream over logs that hold its events; `spans_of` says where those of a segment lie. Segments,
    offsets, append times and schemas are as archived. Its current segments continue in logs of their own, or are sealed
    if the stream was. Calling again with the same target changes nothing. Raises CorruptArchive, creating nothing, if
    the archived stream is not valid; StreamExists, ScopeNotFound, and what `spans_of` raises."""
    if (made := earlier_import(txn, import_target)) is not None:
        return made
    if import_target.scope is not None and txn.scope(import_target.name.scope) is None:
        create_scope(txn, import_target.name.scope, import_target.scope, now)
    info = StreamInfo(
        import_target.id,
        import_target.name,
        stream.schemas[0],
        1,
        stream.tags,
        now,
        stream.sealed,
        1,
        stream.epoch,
        stream.next_number,
    )
    insert_schemas(txn, info, stream.schemas)
    for segment in stream.segments:
        _put_segment(txn, stream, segment, import_target.id, spans_of(segment))
    view = txn.view(import_target.id)
    assert view is not None
    for flaw in stream_violations(view):
        raise CorruptArchive(
            import_target.place, METADATA, f"does not describe a valid stream: segment {flaw.segment} {flaw.message}"
        )
    copied = CopyResult(import_target.id, stream.id, stream.start, stream.end)
    txn.put_state(COPIED, import_target.id, CopyRecord(copied, dict(import_target.asked)))
    detail = {
        "name": str(import_target.name),
        "place": import_target.place,
        "events": stream.events,
        **copied.to_json(),
    }
    how = "attached" if "attached" in import_target.asked else "imported"
    start, end = str(stream.start), str(stream.end)
    part = OriginPart(stream.id, str(stream.name), start, end, stream.events, place=import_target.place)
    record_origin(txn, import_target.id, how, [part], now)
    txn.add_change(import_target.id, how, detail, now=now)
    _put_more(txn, stream, import_target, now)
    return copied


def _put_segment(
    txn: Writing, stream: ArchivedStream, archived: ArchivedSegment, ident: StreamId, spans: Sequence[Span]
) -> None:
    segment = archived.segment
    txn.put_segment(ident, segment)
    for span in spans:
        txn.put_span(ident, span)
    if segment.retired is None and not stream.sealed:
        open_log(txn, ident, segment.id, archived.part.stop, stream.appended_at)


def in_new_logs(txn: Writing, ident: StreamId, files: Mapping[str, FileLocation], begun_at: Micros) -> SpansOf:
    """Put `files` into a new log for each segment. The files are durable and protected by a lease since `begun_at`.
    Raises BlobExpired."""

    def spans_of(archived: ArchivedSegment) -> list[Span]:
        segment, head, stop = archived.segment, archived.segment.head, archived.part.stop
        if head == stop:
            return []
        log = txn.new_log(ident, appended_at=Micros(0))
        txn.extend_log(log, list(_extents(txn, archived, log, files, begun_at)))
        state = txn.logs([log])[log]
        assert state.length == stop - head
        txn.update_log(replace(state, sealed=True))
        return [Span(segment.id, head, log, 0, stop - head)]

    return spans_of


def _extents(
    txn: Writing, archived: ArchivedSegment, log: LogId, files: Mapping[str, FileLocation], begun_at: Micros
) -> Iterator[Extent]:
    """One extent per file; the log begins with the segment's head."""
    size = 0
    for file in archived.files:
        size += file.logical
        blob = txn.insert_blob(files[file.name].key, files[file.name].size, begun_at, PARQUET)
        yield extent_of(file, files[file.name], log, file.start - archived.segment.head, blob, size)


def extent_of(file: ArchivedFile, lies: FileLocation, log: LogId, start: int, blob: BlobId, size_end: int) -> Extent:
    """A data file as an extent of a log, starting at position `start`."""
    return Extent(
        log=log,
        start=start,
        stop=start + file.stop - file.start,
        blob=blob,
        key=lies.key,
        encoding=PARQUET,
        location=BlobLocation(0, 0, lies.row),
        schema=file.schema,
        checksum=lies.checksum,
        appended=file.appended,
        events=file.events,
        size_end=size_end,
    )


def _put_more(txn: Writing, stream: ArchivedStream, import_target: ImportTarget, now: Micros) -> None:
    if import_target.retention and stream.retention is not None:
        put_policy(txn, import_target.id, stream.retention, now)
    for old in stream.aliases if import_target.aliases else ():
        alias = StreamName(import_target.name.scope, old.name)
        if old.scope == stream.name.scope and txn.stream(alias) is None:
            info = txn.stream(import_target.id)
            assert info is not None
            add_alias(txn, info, alias, now)
