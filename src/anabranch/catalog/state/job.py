"""Jobs: the request and the state of each. The progress of a range is not stored here: it is the length of its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, time_text, versioned
from anabranch.errors import JobUnconfirmed
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.origin import OriginPart

ARCHIVE: Final = "archive"
IMPORT: Final = "import"
COPY_SCOPE: Final = "copy scope"
COPY_WHERE: Final = "copy where"
REPLACE: Final = "replace"
FORMAT: Final = 1


class JobState(Enum):
    """The state of a job. The first three can be resumed."""

    PAUSED = "paused"
    FAILED = "failed"
    RUNNING = "running"
    CANCELLED = "cancelled"
    DONE = "done"

    @property
    def ended(self) -> bool:
        """True if the job has ended for good."""
        return self in (JobState.CANCELLED, JobState.DONE)


@dataclass(frozen=True, slots=True)
class JobSource:
    """One source: the events of `stream` between two cuts, written to the internal stream `stage` of the target.
    `origin` is the lineage that the target will record. `store` is the number of its store among those of the job."""

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

    `owner` is the token of the run that works on it, which sent its last heartbeat at `seen_at` and began at
    `begun_at`, when `bytes_before` were moved. `wanted` asks that run to stop. `result` is set once the target exists.
    A job that follows its source then continues: `followed` counts the events copied since, `lag` those missing at the
    last check, and `positions` holds the expected lengths of the copy's open logs, by log. `repeats` counts the events
    left out.

    `target` is what the verb creates: a stream, a scope, or the location of an archive. A job of several streams
    has `members`, each with a row or a plan of its own; `amount` is their total number of events and logical bytes.
    `source` describes what it reads, for display, if there are no parts to name. `place` is the address of the source's
    store; `more_places` are the other stores of a job with sources in several. An empty one is the job's own store.
    """

    id: str
    verb: str
    target: str
    parts: tuple[JobSource, ...]
    place: Mapping[str, str]
    options: Mapping[str, Any]
    created_at: Micros
    state: JobState = JobState.PAUSED
    wanted: JobState | None = None
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
    restored: bool = False  # from a backup or manifest, and its places have not been confirmed since

    @property
    def places(self) -> tuple[Mapping[str, str], ...]:
        """The addresses of its sources' stores, by the numbers in its parts. An empty one is the job's own store."""
        own = self.options.get("within") or self.verb in (ARCHIVE, IMPORT)
        return ({} if own else self.place, *self.more_places)

    @property
    def stream(self) -> StreamName:
        """The target of a job that creates one stream, or adds to it."""
        return StreamName.parse(self.target)

    @property
    def sources(self) -> tuple[str, ...]:
        """What it reads, for display."""
        return (self.source,) if self.source else tuple(str(part.name) for part in self.parts)

    @property
    def events(self) -> int:
        """The number of events of all sources."""
        return self.amount[0] + sum(part.events for part in self.parts)

    @property
    def bytes(self) -> int:
        """Logical bytes of all sources, as known when the job was created."""
        return self.amount[1] + sum(part.bytes for part in self.parts)

    @property
    def gives_up(self) -> bool:
        """True if the sources are deleted once the target is in place."""
        return bool(self.options.get("drop"))

    def silent(self, now: Micros) -> bool:
        """True if the run that owns it has sent no heartbeat for `limits.JOB_HEARTBEAT_TIMEOUT_US` and is presumed dead. Another
        run may take the job over."""
        return self.state is JobState.RUNNING and self.seen_at <= now - limits.JOB_HEARTBEAT_TIMEOUT_US

    def refuse_unconfirmed(self) -> None:
        """Raise JobUnconfirmed if a run would contact a place that is known only from a backup."""
        if self.restored and (self.verb in (ARCHIVE, IMPORT) or any(self.places)):
            raise JobUnconfirmed(self.id)

    def released(self, state: JobState, error: str | None = None) -> JobRow:
        """The job without an owner, in this state."""
        return replace(self, state=state, error=error, owner=None, wanted=None)


def open_lookup(target: str) -> str:
    """The lookup of a job that has not ended, by its target."""
    return f"open {target}"


def ended_lookup(created_at: Micros) -> str:
    """The lookup of a job that has ended and was created then. They sort by time."""
    return f"ended {time_text(created_at)}"


def _lookup(_ident: str, row: JobRow) -> str:
    return ended_lookup(row.created_at) if row.state.ended else open_lookup(row.target)


_SOURCE: Final = StreamId(0x2BCD55E1E5C62EE7)

JOB: Final[StateKind[str, JobRow]] = state_kind(
    "job",
    about=(
        "Jobs: the request and the state of each. The progress of a range is not stored here: it is the "
        "length of its log."
    ),
    by="the job's id, 12 hex digits",
    found_by="`open` and its target; if it has ended, `ended` and when it was created (µs), 16 hex digits",
    key=TEXT_KEY,
    value=versioned(codec_of(JobRow), FORMAT, "job"),
    identity=lambda row: row.id,
    lookup=_lookup,
    example=(
        "0a1b2c3d4e5f",
        JobRow(
            "0a1b2c3d4e5f",
            "copy",
            "iot/copy",
            (
                JobSource(
                    _SOURCE,
                    StreamName("iot", "raw"),
                    StreamCut(_SOURCE, ((SegmentId(0, 0), 0),)),
                    StreamCut(_SOURCE, ((SegmentId(0, 0), 512),)),
                    {"start": "head", "end": "tail"},
                    StreamId(0x1122334455667788),
                    512,
                    16_384,
                    OriginPart(
                        _SOURCE,
                        "iot/raw",
                        f"{_SOURCE:016x}:0000000000000000@0",
                        f"{_SOURCE:016x}:0000000000000000@200",
                        512,
                        place="postgresql://host/streams",
                    ),
                ),
            ),
            {"url": "postgresql://host/streams"},
            {"follow": True},
            Micros(1_767_225_600_000_000),
            state=JobState.RUNNING,
            owner="5d41402abc4b2a76",
            positions={"7": 512},
        ),
    ),
)


def members_prefix(job: str) -> str:
    """The prefix of the ids of a job's members."""
    return f"{job}."


JOB_MEMBER: Final[StateKind[str, JobRow]] = state_kind(
    "job_member",
    about="The streams of a job of several: each is a member, with a row like a job's own.",
    by="the job's id, `.` and the number of the member, 6 digits",
    key=TEXT_KEY,
    value=versioned(codec_of(JobRow), FORMAT, "job"),
    identity=lambda row: row.id,
    example=("0a1b2c3d4e5f.000002", replace(JOB.example.value, id="0a1b2c3d4e5f.000002")),
)
