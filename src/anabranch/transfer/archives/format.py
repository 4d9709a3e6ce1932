"""The contents of an archive's metadata, as values and as the archive's JSON. No I/O.

`docs/how-to/archives.md` is the contract of the format, which stays readable forever; this file is its code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.state.store import is_store_id
from anabranch.core.copy import CopyResult
from anabranch.errors import AnabranchError, InvalidCut, InvalidPointer
from anabranch.model.append import TimeBounds
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment
from anabranch.streams.retention.policy import Retention
from anabranch.transfer.archives.digest import SegmentPart, StreamDigest

FORMAT: Final = 1
METADATA: Final = "archive.json"  # written last: a place with this file is an archive

_HEX = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A data file: the events `start <= offset < stop` of one segment, in order. `name` is its path in the archive,
    `size` its bytes, `logical` the logical bytes of its events, as a log counts them. `sha256` is hex, `checksum` the
    xxh3-64 that the catalog keeps. `schema` is the version of the stream's schema that defines its columns."""

    name: str
    start: int
    stop: int
    size: int
    logical: int
    sha256: str
    checksum: int
    schema: int
    appended: TimeBounds
    events: TimeBounds

    def to_json(self) -> dict[str, object]:
        """As in the metadata."""
        return {
            "file": self.name,
            "from": self.start,
            "to": self.stop,
            "bytes": self.size,
            "logical_bytes": self.logical,
            "sha256": self.sha256,
            "xxh3_64": f"{self.checksum % (1 << 64):016x}",
            "schema": self.schema,
            "appended": [self.appended.low, self.appended.high],
            "event_times": [self.events.low, self.events.high],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchivedFile:
        """The inverse of `to_json`."""
        unsigned = _number(int(value["xxh3_64"], 16), bits=64)
        _need(is_file_name(str(value["file"])), "a data file is not in a stream's folder")
        _need(_HEX.match(value["sha256"]), "a sum is 64 hex digits")
        names = ("from", "to", "bytes", "logical_bytes", "schema")
        start, stop, size, logical, schema = (_number(value[each]) for each in names)
        _need(start < stop, "a file holds an event")
        return cls(
            str(value["file"]),
            start,
            stop,
            size,
            logical,
            value["sha256"],
            unsigned - (1 << 64) if unsigned >> 63 else unsigned,
            schema,
            _bounds(value["appended"]),
            _bounds(value["event_times"]),
        )


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """The archived part of a segment: `segment.head <= offset < part.stop`, in `files`, in offset order."""

    segment: Segment
    part: SegmentPart
    files: tuple[ArchivedFile, ...]

    def to_json(self) -> dict[str, object]:
        """As in the metadata."""
        segment = self.segment
        return {
            "segment": str(segment.id),
            "low": f"{segment.range.low:017x}",
            "high": f"{segment.range.high:017x}",
            "retired": segment.retired,
            "from": segment.head,
            "to": self.part.stop,
            "digest": self.part.digest,
            "files": [file.to_json() for file in self.files],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchivedSegment:
        """The inverse of `to_json`."""
        epoch, _, number = str(value["segment"]).partition(".")
        ident = SegmentId(_number(epoch, bits=31), _number(number, bits=32))
        range_ = KeyRange(int(value["low"], 16), int(value["high"], 16))
        head, stop = _number(value["from"]), _number(value["to"])
        _need(_HEX.match(value["digest"]), "a digest is 64 hex digits")
        files = tuple(ArchivedFile.from_json(file) for file in value["files"])
        edges = [head, *(edge for file in files for edge in (file.start, file.stop)), stop]
        _need(edges == sorted(edges), "files follow each other")
        _need(all(edges[i] == edges[i + 1] for i in range(0, len(edges), 2)), "files leave nothing out")
        times = [time for file in files for time in (file.appended.low, file.appended.high) if time is not None]
        _need(len(times) == 2 * len(files), "every event was appended at some time")
        _need(times == sorted(times) and min(times, default=0) >= 0, "append times rise along a segment")
        part = SegmentPart(ident, range_, head, stop, value["digest"])
        retired = None if value["retired"] is None else _number(value["retired"], bits=31)
        return cls(Segment(ident, range_, retired, head), part, files)


@dataclass(frozen=True, slots=True)
class ArchivedStream:
    """An archived stream or stream range, from the cut `start` to `end`. `schemas` are all its versions, oldest first.

    `more` holds what else belongs to the stream, by kind (such as retention), as the catalog keeps it.
    """

    name: StreamName
    id: StreamId
    schemas: tuple[StreamSchema, ...]
    tags: Mapping[str, str]
    created_at: Micros
    sealed: bool
    epoch: int
    next_number: int
    appended_at: Micros
    start: StreamCut
    end: StreamCut
    segments: tuple[ArchivedSegment, ...]
    more: Mapping[str, Any]

    @property
    def files(self) -> Iterator[ArchivedFile]:
        """All its data files."""
        return (file for segment in self.segments for file in segment.files)

    @property
    def retention(self) -> Retention | None:
        """The retention policy it had."""
        stored = self.more.get("retention")
        policy = None if stored is None else Retention.from_json(stored)
        return None if policy is None else policy.without_groups()

    @property
    def aliases(self) -> list[StreamName]:
        """Its other names."""
        return [StreamName.parse(text) for text in self.more.get("aliases", ())]

    @property
    def events(self) -> int:
        """The number of events it holds."""
        return sum(each.part.stop - each.part.start for each in self.segments)

    @property
    def digest(self) -> StreamDigest:
        """The digest of its events, computed from the segments' digests."""
        return StreamDigest.of(self.schemas[-1], [each.part for each in self.segments])

    def to_json(self) -> dict[str, object]:
        """As in the metadata."""
        now = self.schemas[-1]
        return {
            "name": str(self.name),
            "id": f"{self.id:016x}",
            "created_at": self.created_at,
            "sealed": self.sealed,
            "tags": dict(self.tags),
            "key": now.key,
            "time": now.time,
            "raw": now.raw,
            "schemas": [_schema_fields(schema) for schema in self.schemas],
            "epoch": self.epoch,
            "next_segment": self.next_number,
            "appended_at": self.appended_at,
            "from": str(self.start),
            "to": str(self.end),
            "events": self.events,
            "digest": self.digest.value,
            "segments": [segment.to_json() for segment in self.segments],
            "more": dict(self.more),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArchivedStream:
        """The inverse of `to_json`."""
        columns = [base64.b64decode(each["arrow"], validate=True) for each in value["schemas"]]
        _need(columns, "a stream has a schema")
        roles = value["key"], value["time"], bool(value["raw"])
        stream = cls(
            StreamName.parse(value["name"]),
            StreamId(_number(int(value["id"], 16))),
            tuple(StreamSchema.from_bytes(each, *roles) for each in columns),
            {str(name): str(tag) for name, tag in value["tags"].items()},
            Micros(_number(value["created_at"])),
            bool(value["sealed"]),
            _number(value["epoch"], bits=31),
            _number(value["next_segment"], bits=32),
            Micros(_number(value["appended_at"])),
            StreamCut.parse(value["from"]),
            StreamCut.parse(value["to"]),
            tuple(ArchivedSegment.from_json(each) for each in value["segments"]),
            dict(value["more"]),
        )
        idents = [each.segment.id for each in stream.segments]
        _need(len({*idents}) == len(idents), "a segment occurs more than once")
        for schema in stream.schemas:
            _need({schema.key, schema.time} - {None} <= {*schema.columns.names}, "key and time are columns")
        _need(len(stream.aliases) <= limits.ALIASES_MAX, "a stream has too many aliases")
        for number in {} if stream.retention is None else stream.retention.to_json().values():
            _number(number or 0)
        _number(sum(file.logical for file in stream.files))
        _need(stream.digest.value == value["digest"], "the stream's digest is that of its segments")
        _need(all(1 <= file.schema <= len(columns) for file in stream.files), "a file has a schema of its stream")
        return stream


@dataclass(frozen=True, slots=True)
class Archive:
    """The contents of an archive: streams, as of one moment. `scope` and its `tags` are set if a whole scope was
    archived; `request` is the request id of the call that created it; `store` is the id of the store that the streams
    were in, None in an archive of an older release."""

    streams: tuple[ArchivedStream, ...]
    made_at: Micros
    made_by: str
    scope: str | None = None
    tags: Mapping[str, str] | None = None
    request: str | None = None
    store: str | None = None

    @property
    def files(self) -> Iterator[ArchivedFile]:
        """All data files."""
        return (file for stream in self.streams for file in stream.files)

    @property
    def events(self) -> int:
        """The number of events it holds."""
        return sum(stream.events for stream in self.streams)

    @property
    def size(self) -> int:
        """The size of its data files in bytes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> dict[str, object]:
        """The part of the metadata that is digested and signed."""
        stored = {} if self.store is None else {"store": self.store}
        return stored | {
            "made_at": self.made_at,
            "made_by": self.made_by,
            "request": self.request,
            "scope": None if self.scope is None else {"name": self.scope, "tags": dict(self.tags or {})},
            "streams": [stream.to_json() for stream in self.streams],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Archive:
        """The inverse of `to_json`. Raises ValueError that says what is wrong."""
        try:
            scope, store = value["scope"], value.get("store")
            _need(store is None or is_store_id(store), "expected the id of a store as 32 hex digits")
            _need(scope is not None or len(value["streams"]) == 1, "without a scope there is one stream")
            return cls(
                tuple(ArchivedStream.from_json(each) for each in value["streams"]),
                Micros(_number(value["made_at"])),
                str(value["made_by"]),
                None if scope is None else str(scope["name"]),
                None if scope is None else dict(scope["tags"]),
                value["request"],
                store,
            )
        except (AnabranchError, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as exc:
            raise ValueError(str(exc) or type(exc).__name__) from exc


def canonical(value: object) -> bytes:
    """Canonical JSON: members sorted, no spaces, UTF-8."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def metadata_digest(stored: object) -> str:
    """SHA-256 of the canonical metadata, hex. It covers all files, since the metadata holds their digests."""
    return hashlib.sha256(canonical(stored)).hexdigest()


def sha256_of(data: Iterable[Any]) -> str:
    """SHA-256 of bytes, hex."""
    sum_ = hashlib.sha256()
    for each in data:
        sum_.update(each)
    return sum_.hexdigest()


def folder_name(stream: StreamName, ident: StreamId) -> str:
    """The folder of a stream's data files. Names that differ only in case get different folders on every file
    system."""
    return f"{stream.name.lower()}-{ident:016x}"


def file_name(folder: str, segment: SegmentId, start: int) -> str:
    """The name of the data file that begins at an offset. Names sort in the order of the events of each segment."""
    return f"{folder}/{segment.packed:016x}-{start:016x}.parquet"


_FILE = re.compile(r"[a-z0-9_.\-]{1,128}-[0-9a-f]{16}/[0-9a-f]{16}-[0-9a-f]{16}\.parquet\Z")


def is_file_name(name: str) -> bool:
    """True for a name that `file_name` could have returned."""
    return bool(_FILE.match(name))


def _need(holds: object, what: str) -> None:
    """Raise ValueError unless it holds. The data comes from outside, and `python -O` would remove an assertion."""
    if not holds:
        raise ValueError(f"not so: {what}")


def _number(value: Any, bits: int = 63) -> int:
    """A non-negative integer that the catalog can hold."""
    number = int(value)
    _need(0 <= number < 1 << bits, f"{number} is a number below 2**{bits}")
    return number


def _bounds(value: Any) -> TimeBounds:
    low, high = (None if each is None else Micros(int(each)) for each in value)
    if low is None or high is None:
        _need(low is high, "both bounds are known, or none")
        return TimeBounds(None, None)
    _need(-1 << 63 <= low <= high < 1 << 63, "the lower bound is the lower one")
    return TimeBounds(low, high)


def _schema_fields(schema: StreamSchema) -> dict[str, object]:
    return {
        "columns": [[field.name, str(field.type)] for field in schema.columns],
        "arrow": base64.b64encode(schema.to_bytes()).decode(),
    }


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import or attachment: each stream's name, and how cuts and pointers of its source map to it. For
    files that were no stream before, the source is the new stream itself."""

    streams: tuple[tuple[StreamName, CopyResult], ...]

    def pointer(self, old: EventPointer) -> EventPointer:
        """The pointer of an archived event after the import: same segment, same offset. Raises InvalidPointer for a
        pointer of a stream that was not in the archive."""
        for _, copied in self.streams:
            if copied.source == old.stream:
                return copied.pointer(old)
        raise InvalidPointer(f"the pointer belongs to stream {old.stream:016x}, which was not in the archive")

    def cut(self, old: StreamCut) -> StreamCut:
        """The same place after the import. Raises InvalidCut for a cut of a stream that was not in the archive."""
        for _, copied in self.streams:
            if copied.source == old.stream:
                return copied.cut(old)
        raise InvalidCut(f"the cut belongs to stream {old.stream:016x}, which was not in the archive")

    def to_json(self) -> dict[str, object]:
        """As a request's result."""
        return {"streams": [{"name": str(name), **copied.to_json()} for name, copied in self.streams]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Imported:
        """The inverse of `to_json`."""
        return cls(tuple((StreamName.parse(each["name"]), CopyResult.from_json(each)) for each in value["streams"]))
