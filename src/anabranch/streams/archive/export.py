"""Making an archive: data files first, each durable before the next, and the metadata last of all.

So an archive that was interrupted has no metadata. Asked again, it goes on: a data file that is there and holds what it is
to hold is kept. Of what is archived now, and of nothing else, files that no longer fit are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.archive import METADATA, Archive, ArchivedSegment, ArchivedStream, file_name, folder_name
from anabranch.core.digest import segment_digest
from anabranch.core.stretch import Piece, Stretch, plan_stretch
from anabranch.errors import AlreadyExists, Conflict, CorruptArchive, CorruptStore, InvalidArgument
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Scope
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ports import Runtime
from anabranch.streams.alias import aliases_of
from anabranch.streams.archive.files import Part, Summed, Writing, read_back
from anabranch.streams.archive.metadata import Found, read_metadata, write_metadata
from anabranch.streams.archive.source import Source
from anabranch.streams.ephemeral import is_ephemeral
from anabranch.streams.find import cuts_of, named, need_view
from anabranch.streams.retention import policy_of
from anabranch.streams.scope import need_scope


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be archived of a stream, with all the schemas that it has had and what else belongs to it, as of one
    snapshot."""

    stretch: Stretch
    schemas: tuple[StreamSchema, ...]
    sealed: bool
    more: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """An archive that was made. `files_there` of its files an earlier attempt had written; sizes in bytes."""

    place: str
    digest: str
    signed_by: str | None
    streams: int
    events: int
    files: int
    bytes: int
    files_there: int = field(default=0, compare=False)

    @classmethod
    def of(cls, found: Found, files_there: int = 0) -> ArchiveReport:
        """From an archive that is there."""
        made = found.archive
        files = sum(1 for _ in made.files)
        return cls(
            found.place, found.digest, found.signed_by, len(made.streams), made.events, files, made.size, files_there
        )


def choose_range(txn: Reading, part: StreamRange) -> Chosen:
    """A stream, or a range of one. Raises StreamNotFound, InvalidCut, Truncated."""
    return _chosen(txn, named(part), *cuts_of(part))


def choose_scope(txn: Reading, scope: str, *, internal: bool, ephemeral: bool) -> list[Chosen]:
    """The streams of a scope. Raises ScopeNotFound."""
    need_scope(txn, scope)
    return [
        _chosen(txn, info.id, HEAD, TAIL)
        for info in txn.streams(scope)
        if (internal or not info.name.internal) and (ephemeral or not is_ephemeral(txn, info.id))
    ]


def _chosen(txn: Reading, stream: StreamName | StreamId, start: StreamCut | Edge, end: StreamCut | Edge) -> Chosen:
    view = need_view(txn, stream)
    info = view.info
    schemas = tuple(txn.schema(info.id, version) for version in range(1, info.schema_version + 1))
    policy, aliases = policy_of(txn, info.id), aliases_of(txn, info.id)
    more: dict[str, Any] = {} if policy is None else {"retention": policy.to_json()}
    if aliases:
        more["aliases"] = [str(name) for name in aliases]
    return Chosen(plan_stretch(view, start, end), schemas, info.sealed and (start, end) == (HEAD, TAIL), more)


class Export:
    """One attempt to make an archive in a place."""

    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, target: Blobs, place: str, progress: Watch
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._target = target
        self._place = place
        self._progress = progress
        self._files: dict[str, BlobInfo] = {}
        self._events = self._done = self._kept = 0

    def made_before(self, request: str | None) -> ArchiveReport | None:
        """The archive that is there, if the same request made it. Raises AlreadyExists where another did; damage of one
        that was being written when its writer was killed is as good as none."""
        if self._target.size(METADATA) is None:
            return None
        try:
            found = read_metadata(self._target, self._place)
        except CorruptArchive:
            return None
        if request is not None and found.archive.request == request:
            return ArchiveReport.of(found)
        raise AlreadyExists(f"there is an archive in {self._place} already; give another folder or prefix")

    def run(
        self,
        chosen: Sequence[Chosen],
        hold: Hold,
        *,
        made_by: str,
        scope: Scope | None,
        request: str | None,
        sign: str | None,
    ) -> ArchiveReport:
        """Write what is not there yet. Memory: one data file, as `Writing` says. Raises InvalidArgument where the place
        holds something else, Conflict where somebody else archives to it, and what reading a stream raises."""
        self._look([each.stretch for each in chosen])
        self._events = sum(each.stretch.events for each in chosen)
        streams = tuple(self._stream(each, hold) for each in chosen)
        with suppress(KeyError):
            self._remove(METADATA)
        for name in [*self._files]:
            self._remove(name)  # what an earlier attempt left of these streams, and that does not fit any more
        archive = Archive(
            streams,
            self._runtime.clock.now(),
            made_by,
            None if scope is None else scope.name,
            None if scope is None else scope.tags,
            request,
        )
        try:
            found = write_metadata(self._target, self._place, archive, sign)
        except AlreadyExists as exc:
            raise self._conflict() from exc
        return ArchiveReport.of(found, self._kept)

    def _look(self, stretches: Sequence[Stretch]) -> None:
        self._files = {info.key: info for info in self._target.list()}
        own = tuple(f"{_folder(stretch)}/" for stretch in stretches)
        for name in self._files:
            if name != METADATA and not name.startswith(own):
                raise InvalidArgument(
                    f"{self._place} holds other things, {name} for one; give an empty folder or prefix"
                )

    def _stream(self, chosen: Chosen, hold: Hold) -> ArchivedStream:
        stretch, info = chosen.stretch, chosen.stretch.view.info
        source = Source(self._catalog, self._blobs, self._runtime, info.id)
        return ArchivedStream(
            info.name,
            info.id,
            chosen.schemas,
            dict(info.tags),
            info.created_at,
            chosen.sealed,
            info.epoch,
            info.next_number,
            stretch.appended_at,
            stretch.start,
            stretch.end,
            tuple(self._segment(source, stretch, piece, hold) for piece in stretch.pieces),
            chosen.more,
        )

    def _segment(self, source: Source, stretch: Stretch, piece: Piece, hold: Hold) -> ArchivedSegment:
        segment, info = piece.segment, stretch.view.info
        part = Part(info.id, segment.id, info.schema, info.schema_version)
        done: list[Summed] = []
        position = segment.head
        while position < piece.stop:
            name = file_name(_folder(stretch), segment.id, position)
            summed = self._there(name, part, position, piece.stop) or self._write(
                source, name, part, position, piece.stop, hold
            )
            done.append(summed)
            self._files.pop(name, None)
            self._tell(summed.file.stop - position)
            position = summed.file.stop
            hold.renew()
        blocks = [block for summed in done for block in summed.blocks]
        digest = segment_digest(segment.id, segment.range, segment.head, piece.stop, blocks)
        return ArchivedSegment(segment, digest, tuple(summed.file for summed in done))

    def _there(self, name: str, part: Part, start: int, stop: int) -> Summed | None:
        """The file, if an earlier attempt has written it whole; else it is removed."""
        if name not in self._files:
            return None
        try:
            summed = read_back(name, self._target.get(name), part, start, stop)
        except CorruptStore:  # cut off in the midst
            self._remove(name)
            return None
        self._kept += 1
        return summed

    def _write(self, source: Source, name: str, part: Part, start: int, stop: int, hold: Hold) -> Summed:
        file = Writing(part, start)
        for run in source.runs(part.segment, start, stop, part.schema.columns):
            more = file.add(run)
            hold.renew()
            self._progress("archiving", self._done + file.stop - start, self._events)
            if not more:
                break
        data, summed = file.finish(name)
        try:
            self._target.put(name, [data])
        except AlreadyExists as exc:
            raise self._conflict() from exc
        return summed

    def _tell(self, events: int) -> None:
        self._done += events
        self._progress("archiving", self._done, self._events)

    def _remove(self, name: str) -> None:
        del self._files[name]
        self._target.delete(name)

    def _conflict(self) -> Conflict:
        return Conflict(f"somebody else writes an archive to {self._place} at the same time")


def _folder(stretch: Stretch) -> str:
    return folder_name(stretch.view.info.name, stretch.view.info.id)
