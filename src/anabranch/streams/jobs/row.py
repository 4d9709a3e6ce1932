"""A job as its target's catalog keeps it: one row that says what is wanted and how it stands, and one plan a source.

How far a range has come stands in neither: it is the length of the log that the range is written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.port import Checkpointed, Reading
from anabranch.errors import FormatTooNew, JobNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart
from anabranch.model.stream import Segment

JOB: Final = "job"
PLAN: Final = "job_plan"
ARCHIVE: Final = "archive"
IMPORT: Final = "import"
COPY_SCOPE: Final = "copy scope"
_FORMAT: Final = 3
_STREAMS: Final = (
    "copy",
    "append",
    "stitch",
)  # the verbs that the first format knew; only the third knows several stores


class State(Enum):
    """How a job stands. The first three can be resumed."""

    PAUSED = "paused"
    FAILED = "failed"
    RUNNING = "running"
    CANCELLED = "cancelled"
    DONE = "done"

    @property
    def ended(self) -> bool:
        """True if nothing more will come of it."""
        return self in (State.CANCELLED, State.DONE)


@dataclass(frozen=True, slots=True)
class Part:
    """One source: the events of `stream` between two cuts, written to the internal stream `stage` of the target.
    `origin` is what the target will tell of where they came from. `store` is the number of its store among those of the
    job."""

    stream: StreamId
    name: StreamName
    start: StreamCut
    end: StreamCut
    asked: Mapping[str, object]
    stage: StreamId
    events: int
    bytes: int
    origin: OriginPart
    store: int = 0


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. Times in µs, sizes in logical bytes.

    `owner` is the token of the run that works on it, which was last heard of at `seen_at` and began at `begun_at`, when
    `bytes_before` were moved. `wanted` asks that run to stop. `result` is there once the target is; a job that follows
    its source runs on: `followed` counts the events that were copied since, `lag` those that were missing at the last
    look, and `positions` says how long the copy's open logs are, by log. `repeats` counts the events that were left out.

    `target` is a stream, or what the verb makes else: a scope, or the place of an archive. A job of several streams has
    `members`, which weigh `amount`: so many events, and logical bytes; each has a row or a plan of its own. `source` is
    what it reads, for people, where no parts say so. `place` is where the source lives; `more_places` are the other stores
    of a job with sources in several, where an empty one is the job's own.
    """

    id: str
    verb: str
    target: str
    parts: tuple[Part, ...]
    place: Mapping[str, str]
    options: Mapping[str, Any]
    created_at: Micros
    state: State = State.PAUSED
    wanted: State | None = None
    owner: str | None = None
    seen_at: Micros = Micros(0)
    begun_at: Micros = Micros(0)
    bytes_before: int = 0
    result: Mapping[str, Any] | None = None
    error: str | None = None
    repeats: int = 0
    positions: Mapping[str, int] | None = None
    followed: int = 0
    lag: int = 0
    source: str = ""
    members: int = 0
    amount: tuple[int, int] = (0, 0)
    more_places: tuple[Mapping[str, str], ...] = ()

    @property
    def places(self) -> tuple[Mapping[str, str], ...]:
        """Where its sources live, by the numbers that its parts tell. The job's own store is an empty one."""
        own = self.options.get("within") or self.verb in (ARCHIVE, IMPORT)
        return ({} if own else self.place, *self.more_places)

    @property
    def stream(self) -> StreamName:
        """The target of a job that makes one stream, or adds to it."""
        return StreamName.parse(self.target)

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads, for people."""
        return (self.source,) if self.source else tuple(str(part.name) for part in self.parts)

    @property
    def events(self) -> int:
        """Events of all sources."""
        return self.amount[0] + sum(part.events for part in self.parts)

    @property
    def bytes(self) -> int:
        """Logical bytes of all sources, as far as they were known when the job was made."""
        return self.amount[1] + sum(part.bytes for part in self.parts)

    @property
    def gives_up(self) -> bool:
        """True if the sources are deleted once the target is in place."""
        return bool(self.options.get("drop"))

    def silent(self, now: Micros) -> bool:
        """True if a run works on it that was not heard of for `limits.JOB_SILENT_US`: its process is gone, or as good
        as gone. Another may take the job over."""
        return self.state is State.RUNNING and self.seen_at <= now - limits.JOB_SILENT_US

    def to_piece(self, kind: str = JOB) -> Checkpointed:
        """As the catalog keeps it."""
        value = {
            "format": _FORMAT if self.more_places else 1 if self.verb in _STREAMS and kind == JOB else 2,
            "verb": self.verb,
            "target": self.target,
            "parts": [_told_part(part) for part in self.parts],
            "place": dict(self.place),
            "options": dict(self.options),
            "created_at": self.created_at,
            "state": self.state.value,
            "wanted": None if self.wanted is None else self.wanted.value,
            "owner": self.owner,
            "seen_at": self.seen_at,
            "begun_at": self.begun_at,
            "bytes_before": self.bytes_before,
            "result": None if self.result is None else dict(self.result),
            "error": self.error,
            "repeats": self.repeats,
            "positions": None if self.positions is None else dict(self.positions),
            "followed": self.followed,
            "lag": self.lag,
            "source": self.source,
            "members": self.members,
            "amount": list(self.amount),
            "more_places": [dict(place) for place in self.more_places],
        }
        return Checkpointed(kind, self.id, value)

    @classmethod
    def from_piece(cls, piece: Checkpointed) -> JobRow:
        """The inverse of `to_piece`. Raises FormatTooNew."""
        value: dict[str, Any] = dict(piece.value)
        if value["format"] > _FORMAT:
            raise FormatTooNew(f"job {piece.name}", value["format"], _FORMAT)
        amount = value.get("amount", (0, 0))
        return cls(
            id=piece.name,
            verb=value["verb"],
            target=value["target"],
            parts=tuple(_heard_part(part) for part in value["parts"]),
            place=value["place"],
            options=value["options"],
            created_at=Micros(value["created_at"]),
            state=State(value["state"]),
            wanted=None if value["wanted"] is None else State(value["wanted"]),
            owner=value["owner"],
            seen_at=Micros(value["seen_at"]),
            begun_at=Micros(value["begun_at"]),
            bytes_before=value["bytes_before"],
            result=value["result"],
            error=value["error"],
            repeats=value["repeats"],
            positions=value["positions"],
            followed=value["followed"],
            lag=value["lag"],
            source=value.get("source", ""),
            members=value.get("members", 0),
            amount=(int(amount[0]), int(amount[1])),
            more_places=tuple(value.get("more_places", ())),
        )

    def released(self, state: State, error: str | None = None) -> JobRow:
        """The job when nobody works on it any more."""
        return replace(self, state=state, error=error, owner=None, wanted=None)


@dataclass(frozen=True, slots=True)
class Range:
    """The events `start <= offset < stop` of a source's segment, about `size` logical bytes, and the log of the target
    that they are written to."""

    segment: SegmentId
    start: int
    stop: int
    size: int
    log: LogId

    @property
    def events(self) -> int:
        """How many events it holds."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    """What a source is when its job is made: its description, its segments in id order, each with the offset behind
    its last event, and the ranges in reading order. No event was appended after `appended_at`."""

    schema_version: int
    epoch: int
    next_number: int
    tags: Mapping[str, str]
    segments: tuple[tuple[Segment, int], ...]
    ranges: tuple[Range, ...]
    appended_at: Micros

    def to_piece(self, job: str, number: int) -> Checkpointed:
        """As the catalog keeps it: the plan of a job's `number`th source."""
        value = {
            "schema_version": self.schema_version,
            "epoch": self.epoch,
            "next_number": self.next_number,
            "tags": dict(self.tags),
            "segments": [
                [s.id.packed, s.range.low, s.range.high, s.retired, s.head, stop] for s, stop in self.segments
            ],
            "ranges": [[r.segment.packed, r.start, r.stop, r.size, r.log] for r in self.ranges],
            "appended_at": self.appended_at,
        }
        return Checkpointed(PLAN, plan_name(job, number), value)

    @classmethod
    def from_piece(cls, piece: Checkpointed) -> Plan:
        """The inverse of `to_piece`."""
        value: dict[str, Any] = dict(piece.value)
        return cls(
            value["schema_version"],
            value["epoch"],
            value["next_number"],
            value["tags"],
            tuple(
                (Segment(SegmentId.unpack(ident), KeyRange(low, high), retired, head), stop)
                for ident, low, high, retired, head, stop in value["segments"]
            ),
            tuple(
                Range(SegmentId.unpack(segment), start, stop, size, LogId(log))
                for segment, start, stop, size, log in value["ranges"]
            ),
            Micros(value["appended_at"]),
        )


def plan_name(job: str, number: int) -> str:
    """The name of the plan of a job's `number`th source."""
    return f"{job}.{number}"


def need_job(txn: Reading, job: str) -> JobRow:
    """The job. Raises JobNotFound."""
    piece = txn.piece(JOB, job)
    if piece is None:
        raise JobNotFound(job)
    return JobRow.from_piece(piece)


def need_plan(txn: Reading, job: str, number: int) -> Plan:
    """The plan of a job's `number`th source. Raises JobNotFound."""
    piece = txn.piece(PLAN, plan_name(job, number))
    if piece is None:
        raise JobNotFound(job)
    return Plan.from_piece(piece)


def _told_part(part: Part) -> dict[str, object]:
    return {
        "stream": f"{part.stream:016x}",
        "name": str(part.name),
        "from": str(part.start),
        "to": str(part.end),
        "asked": dict(part.asked),
        "stage": f"{part.stage:016x}",
        "events": part.events,
        "bytes": part.bytes,
        "origin": part.origin.to_json(),
        "store": part.store,
    }


def _heard_part(value: Mapping[str, Any]) -> Part:
    return Part(
        StreamId(int(value["stream"], 16)),
        StreamName.parse(value["name"]),
        StreamCut.parse(value["from"]),
        StreamCut.parse(value["to"]),
        value["asked"],
        StreamId(int(value["stage"], 16)),
        value["events"],
        value["bytes"],
        OriginPart.from_json(value["origin"]),
        value.get("store", 0),
    )
