"""Making an archive: data files first, in any order, and the metadata last of all.

So an archive that was interrupted has no metadata, and goes on: a data file that is there and holds what it is to hold is
kept. Of what is archived, and of nothing else, files that no longer fit are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Reading
from anabranch.core.archive import METADATA, Archive, metadata_digest
from anabranch.core.stretch import Stretch, plan_stretch
from anabranch.errors import AlreadyExists, Conflict, CorruptArchive, CorruptStore, InvalidArgument, NotFound
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream_range import StreamRange
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

    def to_json(self) -> dict[str, Any]:
        """As a job's result."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchiveReport:
        """The inverse of `to_json`."""
        return cls(**value)


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


def made_before(target: Blobs, place: str, request: str | None) -> ArchiveReport | None:
    """The archive that is there, if the same request made it. Raises AlreadyExists where another did; damage of one that
    was being written when its writer was killed is as good as none."""
    if target.size(METADATA) is None:
        return None
    try:
        found = read_metadata(target, place)
    except CorruptArchive:
        return None
    if request is not None and found.archive.request == request:
        return ArchiveReport.of(found)
    raise AlreadyExists(f"there is an archive in {place} already; give another folder or prefix")


def refuse_strangers(target: Blobs, place: str, folders: Iterable[str]) -> None:
    """Raise InvalidArgument where the place holds anything but what an earlier attempt wrote to these folders."""
    own = tuple(f"{folder}/" for folder in folders)
    for info in target.list():
        if info.key != METADATA and not info.key.startswith(own):
            raise InvalidArgument(f"{place} holds other things, {info.key} for one; give an empty folder or prefix")


def file_there(target: Blobs, name: str, part: Part, range_: SegmentRange) -> Summed | None:
    """The data file, if it was written before and holds just the range; else it is removed. Memory: the file."""
    if target.size(name) is None:
        return None
    try:
        summed = read_back(name, target.get(name), part, range_.start, range_.stop)
    except CorruptStore:  # cut off in the midst
        summed = None
    if summed is None or summed.file.stop != range_.stop:
        target.delete(name)
        return None
    return summed


def write_file(
    source: Source,
    target: Blobs,
    place: str,
    name: str,
    part: Part,
    range_: SegmentRange,
    told: Callable[[int, int], None],
) -> Summed:
    """Write a data file, durably. `told` hears of events, and of the bytes that are held for them. Memory: the file, as
    `Writing` says. Raises Conflict where somebody else wrote another one meanwhile, and what reading the stream raises."""
    file = Writing(part, range_.start)
    for run in source.runs(part.segment, range_.start, range_.stop, part.schema.columns):
        told(run.batch.num_rows, run.batch.nbytes)
        file.add(run)
    data, summed = file.finish(name)
    try:
        target.put(name, [data])
    except AlreadyExists as exc:
        if (there := file_there(target, name, part, range_)) is None:
            raise _conflict(place) from exc
        return there
    return summed


def finish_archive(target: Blobs, place: str, archive: Archive, folders: Iterable[str], sign: str | None) -> Found:
    """Write the metadata of files that are all there, and remove what else lies in their folders. An archive that is the
    same already stays. Raises Conflict where there is another one."""
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


def give_up(target: Blobs, names: Iterable[str]) -> None:
    """Remove the data files of an archive that will not be made. What lies beside a whole archive is left alone."""
    if target.size(METADATA) is None:
        for name in names:
            if target.size(name) is not None:
                target.delete(name)


def _conflict(place: str) -> Conflict:
    return Conflict(f"somebody else writes an archive to {place} at the same time")
