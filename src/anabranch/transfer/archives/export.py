"""Creating an archive: first the data files, in any order, and the metadata last.

An interrupted archive has no metadata and can be continued: an existing data file is kept if it holds what it should.
Files that no longer fit are removed, but only in the folders of the archived streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Reading
from anabranch.core.stream_slice import StreamSlice, plan_slice
from anabranch.errors import AlreadyExists, Conflict, CorruptArchive, CorruptStore, InvalidArgument, NotFound
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import schemas_of
from anabranch.streams.directory.find import need_view, range_cuts, range_stream
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.retention.stored import policy_of
from anabranch.transfer.archives.data_files import DataFilePart, DataFileWriter, DigestedFile, read_back
from anabranch.transfer.archives.format import METADATA, Archive, metadata_digest
from anabranch.transfer.archives.metadata import FoundArchive, read_metadata, write_metadata
from anabranch.transfer.archives.source import SourceReader


@dataclass(frozen=True, slots=True)
class ArchiveSelection:
    """What to archive of a stream, with all its schemas and what else belongs to it, as of one snapshot."""

    stream_slice: StreamSlice
    schemas: tuple[StreamSchema, ...]
    sealed: bool
    more: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """A finished archive. An earlier attempt had written `files_there` of its files; sizes are in bytes."""

    place: str
    digest: str
    signed_by: str | None
    streams: int
    events: int
    files: int
    bytes: int
    files_there: int = field(default=0, compare=False)

    @classmethod
    def of(cls, found: FoundArchive, files_there: int = 0) -> ArchiveReport:
        """From an existing archive."""
        made = found.archive
        files = sum(1 for _ in made.files)
        return cls(
            found.place, found.digest, found.signed_by, len(made.streams), made.events, files, made.size, files_there
        )

    def to_json(self) -> dict[str, Any]:
        """As a job's result."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchiveReport:
        """The inverse of `to_json`."""
        return cls(**value)


def choose_range(txn: Reading, part: StreamRange) -> ArchiveSelection:
    """A stream or stream range. Raises StreamNotFound, InvalidCut, Truncated."""
    return _selection_of(txn, range_stream(part), *range_cuts(part))


def choose_scope(txn: Reading, scope: str, *, internal: bool, ephemeral: bool) -> list[ArchiveSelection]:
    """The streams of a scope. Raises ScopeNotFound."""
    need_scope(txn, scope)
    chosen = [info.id for info in txn.streams(scope) if internal or not info.name.internal]
    left_out = frozenset() if ephemeral else ephemeral_among(txn, chosen)
    return [_selection_of(txn, stream, HEAD, TAIL) for stream in chosen if stream not in left_out]


def _selection_of(
    txn: Reading, stream: StreamName | StreamId, start: StreamCut | Edge, end: StreamCut | Edge
) -> ArchiveSelection:
    view = need_view(txn, stream)
    info = view.info
    schemas = tuple(schemas_of(txn, info.id, info.schema_version))
    policy, aliases = policy_of(txn, info.id), txn.aliases_of(info.id)
    kept = None if policy is None else policy.without_groups()
    more: dict[str, Any] = {} if kept is None else {"retention": kept.to_json()}
    if aliases:
        more["aliases"] = [str(name) for name in aliases]
    return ArchiveSelection(plan_slice(view, start, end), schemas, info.sealed and (start, end) == (HEAD, TAIL), more)


def earlier_archive(target: Blobs, place: str, request: str | None) -> ArchiveReport | None:
    """The existing archive, if the same request created it. Raises AlreadyExists if another request did. A damaged one
    counts as none: its writer may have been killed."""
    if target.size(METADATA) is None:
        return None
    try:
        found = read_metadata(target, place)
    except CorruptArchive:
        return None
    if request is not None and found.archive.request == request:
        return ArchiveReport.of(found)
    raise AlreadyExists(f"{place} already holds an archive; give another folder or prefix")


def require_own_files(target: Blobs, place: str, folders: Iterable[str]) -> None:
    """Raise InvalidArgument if the place holds anything but what an earlier attempt wrote to these folders."""
    own = tuple(f"{folder}/" for folder in folders)
    for info in target.list():
        if info.key != METADATA and not info.key.startswith(own):
            raise InvalidArgument(f"{place} is not empty: it holds {info.key}; give an empty folder or prefix")


def existing_file(target: Blobs, name: str, part: DataFilePart, range_: SegmentRange) -> DigestedFile | None:
    """The data file, if it exists and holds exactly the range; otherwise it is removed. Memory: the file."""
    if target.size(name) is None:
        return None
    try:
        summary = read_back(name, target.get(name), part, range_.start, range_.stop)
    except CorruptStore:  # its writer was interrupted
        summary = None
    if summary is None or summary.file.stop != range_.stop:
        target.delete(name)
        return None
    return summary


def write_file(
    source: SourceReader,
    target: Blobs,
    place: str,
    name: str,
    part: DataFilePart,
    range_: SegmentRange,
    on_rows: Callable[[int, int], None],
) -> DigestedFile:
    """Write a data file durably. `on_rows` is called with events, and with the bytes held for them. Memory: as for
    `DataFileWriter`. Raises Conflict if another process wrote a different one meanwhile, and what reading the stream
    raises."""
    file = DataFileWriter(part, range_.start)
    for run in source.runs(part.segment, range_.start, range_.stop, part.schema.columns):
        on_rows(run.batch.num_rows, run.batch.nbytes)
        file.add(run)
    data, summary = file.finish(name)
    try:
        target.put(name, [data])
    except AlreadyExists as exc:
        if (there := existing_file(target, name, part, range_)) is None:
            raise _conflict(place) from exc
        return there
    return summary


def finish_archive(
    target: Blobs, place: str, archive: Archive, folders: Iterable[str], sign: str | None
) -> FoundArchive:
    """Write the metadata once all files exist, and remove everything else from their folders. An identical archive is
    kept. Raises Conflict if there is a different one."""
    own, names = tuple(f"{folder}/" for folder in folders), {file.name for file in archive.files}
    try:
        found = read_metadata(target, place)
    except NotFound:
        pass
    except CorruptArchive:
        target.delete(METADATA)
    else:
        if found.digest == metadata_digest(archive.to_json()):
            return found
        raise _conflict(place)
    for info in target.list():
        if info.key.startswith(own) and info.key not in names:
            target.delete(info.key)
    try:
        return write_metadata(target, place, archive, sign)
    except AlreadyExists as exc:
        raise _conflict(place) from exc


def remove_archive_files(target: Blobs, names: Iterable[str]) -> None:
    """Remove the data files of an abandoned archive. If there is a finished archive, nothing is removed."""
    if target.size(METADATA) is None:
        for name in names:
            if target.size(name) is not None:
                target.delete(name)


def _conflict(place: str) -> Conflict:
    return Conflict(f"another process writes an archive to {place} at the same time")
