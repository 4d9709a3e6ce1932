"""The transaction in which archived or attached files become a stream: names, segments, spans, logs and extents at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.core.archive import METADATA, ArchivedFile, ArchivedSegment, ArchivedStream
from anabranch.core.compaction import PARQUET
from anabranch.core.copy import Copied
from anabranch.core.invariants import stream_flaws
from anabranch.errors import CorruptArchive, StreamExists
from anabranch.model.append import Place
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import Extent, Span, StreamInfo
from anabranch.streams.alias import add_alias
from anabranch.streams.copy import COPIED
from anabranch.streams.find import need_free
from anabranch.streams.origins import record_origin
from anabranch.streams.retention import put_policy
from anabranch.streams.scope import create_scope, need_scope

SpansOf = Callable[[ArchivedSegment], Sequence[Span]]  # in offset order, over sealed logs; none where it is empty


class Lying(NamedTuple):
    """Where a data file lies for the store: its blob's key, size and checksum, and the row that it begins with."""

    key: str
    size: int
    checksum: int
    row: int = 0


class Wish(NamedTuple):
    """What a stream is to become: its `name`, its `id` if it is made, and what was `asked` for (JSON), by which the same
    import is known again. `place` is for people. With `retention` it takes its policy along, with `aliases` those of
    its aliases that are free. `scope` has the tags of its scope, where that is to be made if it is not there."""

    name: StreamName
    id: StreamId
    asked: Mapping[str, Any]
    place: str
    retention: bool = False
    aliases: bool = False
    scope: Mapping[str, str] | None = None


def made_before(txn: Reading, wish: Wish) -> Copied | None:
    """What the same import made, or None where nothing has the name. Raises StreamExists where something else has it,
    ScopeNotFound."""
    if wish.scope is None:
        need_scope(txn, wish.name.scope)
    present = txn.stream(wish.name)
    if present is None:
        return None
    made = txn.piece(COPIED, f"{present.id:016x}") if present.name == wish.name else None
    if made is None or made.value["asked"] != wish.asked:
        need_free(txn, wish.name)
        raise StreamExists(str(wish.name))
    return Copied.from_json(dict(made.value))


def adopt(txn: Writing, stream: ArchivedStream, wish: Wish, now: Micros, *, spans_of: SpansOf) -> Copied:
    """Make the stream of logs that hold its events: `spans_of` says where those of a segment lie. It has the segments,
    offsets, append times and schemas that it was archived with; its current segments go on in logs of their own, or are
    sealed if it was. Asked again for the same, nothing changes. Raises CorruptArchive, with nothing made, where what was
    archived makes no sound stream; StreamExists, ScopeNotFound, and what `spans_of` raises.
    """
    if (made := made_before(txn, wish)) is not None:
        return made
    if wish.scope is not None and txn.scope(wish.name.scope) is None:
        create_scope(txn, wish.name.scope, wish.scope, now)
    _insert(txn, stream, wish, now)
    for segment in stream.segments:
        _put_segment(txn, stream, segment, wish.id, spans_of(segment))
    view = txn.view(wish.id)
    assert view is not None
    for flaw in stream_flaws(view):
        raise CorruptArchive(wish.place, METADATA, f"makes no sound stream: segment {flaw.segment} {flaw.what}")
    copied = Copied(wish.id, stream.id, stream.start, stream.end)
    txn.put_piece(Checkpointed(COPIED, f"{wish.id:016x}", {**copied.to_json(), "asked": dict(wish.asked)}))
    detail = {"name": str(wish.name), "place": wish.place, "events": stream.events, **copied.to_json()}
    how = "attached" if "attached" in wish.asked else "imported"
    start, end = str(stream.start), str(stream.end)
    part = OriginPart(stream.id, str(stream.name), start, end, stream.events, place=wish.place)
    record_origin(txn, wish.id, how, [part], now)
    txn.add_change(wish.id, how, detail, now=now)
    _put_more(txn, stream, wish, now)
    return copied


def _insert(txn: Writing, stream: ArchivedStream, wish: Wish, now: Micros) -> None:
    """The stream's row, with all its schemas, since versions go on from there."""
    for version, schema in enumerate(stream.schemas, 1):
        info = StreamInfo(
            wish.id,
            wish.name,
            schema,
            version,
            stream.tags,
            now,
            stream.sealed,
            1,
            stream.epoch,
            stream.next_number,
        )
        if version == 1:
            txn.insert_stream(info)
        else:
            txn.update_stream(info)


def _put_segment(
    txn: Writing, stream: ArchivedStream, archived: ArchivedSegment, ident: StreamId, spans: Sequence[Span]
) -> None:
    segment = archived.segment
    txn.put_segment(ident, segment)
    for span in spans:
        txn.put_span(ident, span)
    if segment.retired is None and not stream.sealed:
        # Append times rise along a segment, so the new log's start where the archived ones have come to.
        following = txn.new_log(ident, appended_at=stream.appended_at)
        txn.put_span(ident, Span(segment.id, archived.part.stop, following, 0, None))


def in_new_logs(txn: Writing, ident: StreamId, files: Mapping[str, Lying], begun_at: Micros) -> SpansOf:
    """Puts `files`, which are durable and held by a lease since `begun_at`, behind a new log for each segment. Raises
    BlobExpired."""

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
    txn: Writing, archived: ArchivedSegment, log: LogId, files: Mapping[str, Lying], begun_at: Micros
) -> Iterator[Extent]:
    """One extent a file; the log begins with the segment's head."""
    size = 0
    for file in archived.files:
        size += file.logical
        blob = txn.insert_blob(files[file.name].key, files[file.name].size, begun_at, PARQUET)
        yield extent_of(file, files[file.name], log, file.start - archived.segment.head, blob, size)


def extent_of(file: ArchivedFile, lies: Lying, log: LogId, start: int, blob: BlobId, size_end: int) -> Extent:
    """A data file as an extent of a log, from the position `start` on."""
    return Extent(
        log=log,
        start=start,
        stop=start + file.stop - file.start,
        blob=blob,
        key=lies.key,
        encoding=PARQUET,
        place=Place(0, 0, lies.row),
        schema=file.schema,
        checksum=lies.checksum,
        appended=file.appended,
        events=file.events,
        size_end=size_end,
    )


def _put_more(txn: Writing, stream: ArchivedStream, wish: Wish, now: Micros) -> None:
    if wish.retention and stream.retention is not None:
        put_policy(txn, wish.id, stream.retention, now)
    for old in stream.aliases if wish.aliases else ():
        alias = StreamName(wish.name.scope, old.name)
        if old.scope == stream.name.scope and txn.stream(alias) is None:
            info = txn.stream(wish.id)
            assert info is not None
            add_alias(txn, info, alias, now)
