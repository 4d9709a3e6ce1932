"""Operations: the requests of clients on segments, their times and answers; and the kinds of faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["Anomaly", "Fault", "Kind", "Log", "Operation", "Outcome", "Stored"]

_SHOWN_MAX: Final = 4


class Kind(Enum):
    """The kind of request."""

    APPEND = "append"  # with `expected` on condition of the tail, with `fence` under a fence
    READ = "read"  # events from an offset on; with `to_tail` all that existed
    TAIL = "tail"  # the number of events, and perhaps whether the segment is sealed
    SEAL = "seal"
    FENCE = "fence"  # raise the fence: appends with a lower one are refused


class Outcome(Enum):
    """The answer to the client. UNKNOWN is no answer: the operation took place, or never does, or will."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Operation:
    """One call. The calls of a `client` are sequential, except that its appends may overlap. `segment` is empty if
    the answer to an append did not give its place; `into` is then the prefix of the names of the possible segments.
    `offset` is the first event's, or the length for TAIL and SEAL. Operations with one `unit` are atomic together,
    as the events of a transaction are, each invoked when its commit is. `reason` of a refusal: sealed, fenced,
    condition, or any other word."""

    client: str
    kind: Kind
    segment: str
    invoked: int
    completed: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    events: tuple[str, ...] = ()
    expected: int | None = None
    fence: int | None = None
    reason: str = ""
    unit: str | None = None
    into: str = ""
    sealed: bool | None = None
    to_tail: bool = False

    @property
    def stop(self) -> int:
        """The offset after the last event; the length for TAIL and SEAL."""
        return (self.offset or 0) + len(self.events)

    def __str__(self) -> str:
        guards = [f"expected {self.expected}"] if self.expected is not None else []
        guards += [f"fence {self.fence}"] if self.fence is not None else []
        place = "" if self.offset is None else f" at {self.offset}"
        shown = ", ".join(self.events[:_SHOWN_MAX]) + (" …" if len(self.events) > _SHOWN_MAX else "")
        text = " ".join(filter(None, [self.kind.value, shown, *guards]))
        end = "…" if self.completed is None else self.completed
        return f"[{self.invoked}–{end}] {self.client}: {text}: {self.outcome.value} {self.reason}{place}".rstrip()


class Stored(NamedTuple):
    """What a segment holds at the end: its first offset that was not truncated, and the events from there on."""

    head: int
    events: tuple[str, ...]


class Fault(Enum):
    """What can be wrong with a log."""

    LOST = "lost"  # acknowledged, and not stored
    DUPLICATED = "duplicated"  # one event at two offsets
    UNSEEN = "unseen"  # acknowledged or seen, and a later read did not show it
    INCONSISTENT = "inconsistent offsets"  # two answers give different events for an offset
    NON_MONOTONIC = "non-monotonic read"  # one client saw less than before
    TORN = "torn atomic unit"
    EARLY = "seen before it was asked for"
    ABORTED = "refused, and yet there"
    INVENTED = "nobody wrote it"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"  # the search was given up


@dataclass(frozen=True)
class Anomaly:
    """One fault, and the operations that show it."""

    fault: Fault
    segment: str
    why: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        shown = "".join(f"\n    {operation}" for operation in self.operations[:_SHOWN_MAX])
        return f"{self.fault.value}: {self.segment}: {self.why}{shown}"


class Log:
    """All information on one segment."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.claims: dict[int, dict[str, list[Operation]]] = defaultdict(dict)
        self.length = 0

    def answered(self, *kinds: Kind) -> Iterator[Operation]:
        return (each for each in self.operations if each.kind in kinds and each.outcome is Outcome.OK)
