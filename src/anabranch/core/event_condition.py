"""Decides from the catalog alone whether a condition holds for all events of an extent, for none, or only for some.

A condition is a tree of tests. Each test can come out true, false or null for the events of an extent; the tree
combines these sets of outcomes by SQL's three-valued logic. So a decision is exact where it is made at all: an outcome
that is not in the set occurs for no event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, Flag
from functools import reduce
from typing import Final

from anabranch.model.append import TimeBounds
from anabranch.model.keyspace import KeyRange


class Truth(Flag):
    """The outcomes that a condition can have for the events of an extent."""

    TRUE = 1
    FALSE = 2
    NULL = 4


ANY: Final = Truth.TRUE | Truth.FALSE | Truth.NULL
_EACH: Final[tuple[Truth, ...]] = (Truth.TRUE, Truth.FALSE, Truth.NULL)


class Match(Enum):
    """How many events of an extent match."""

    ALL = "all"
    NONE = "none"
    SOME = "some"  # or it is not known without reading


@dataclass(frozen=True, slots=True)
class ExtentFacts:
    """What the catalog knows of the events of an extent."""

    keys: KeyRange
    appended: TimeBounds
    events: TimeBounds


@dataclass(frozen=True, slots=True)
class AnyTest:
    """A test of which nothing is known without reading."""

    def outcomes(self, _facts: ExtentFacts) -> Truth:
        """All of them."""
        return ANY


@dataclass(frozen=True, slots=True)
class TimeTest:
    """`low <= time < high` (µs) for the append time, or for the event time, which may be null."""

    low: int
    high: int
    appended: bool

    def outcomes(self, facts: ExtentFacts) -> Truth:
        """By the bounds of the times. Without bounds, all of them."""
        bounds = facts.appended if self.appended else facts.events
        if bounds.low is None or bounds.high is None:
            return ANY
        null = Truth(0) if self.appended else Truth.NULL
        if bounds.high < self.low or bounds.low >= self.high:
            return Truth.FALSE | null
        if self.low <= bounds.low and bounds.high < self.high:
            return Truth.TRUE | null
        return Truth.TRUE | Truth.FALSE | null


@dataclass(frozen=True, slots=True)
class KeyTest:
    """The routing key is one of those with these points. Other keys may have the same points, and a null key may be
    in any segment."""

    points: tuple[int, ...]

    def outcomes(self, facts: ExtentFacts) -> Truth:
        """By the key range of the segment."""
        if any(facts.keys.low <= point < facts.keys.high for point in self.points):
            return ANY
        return Truth.FALSE | Truth.NULL


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of the conditions hold."""

    parts: tuple[EventCondition, ...]

    def outcomes(self, facts: ExtentFacts) -> Truth:
        """SQL's AND."""
        return reduce(_and, (part.outcomes(facts) for part in self.parts))


@dataclass(frozen=True, slots=True)
class OneOf:
    """At least one of the conditions holds."""

    parts: tuple[EventCondition, ...]

    def outcomes(self, facts: ExtentFacts) -> Truth:
        """SQL's OR."""
        return _not(reduce(_and, (_not(part.outcomes(facts)) for part in self.parts)))


@dataclass(frozen=True, slots=True)
class Negated:
    """The condition does not hold."""

    part: EventCondition

    def outcomes(self, facts: ExtentFacts) -> Truth:
        """SQL's NOT: null stays null."""
        return _not(self.part.outcomes(facts))


EventCondition = AnyTest | TimeTest | KeyTest | AllOf | OneOf | Negated


def match(condition: EventCondition, facts: ExtentFacts) -> Match:
    """How many events of an extent match: an event matches if the condition is true, neither false nor null."""
    found = condition.outcomes(facts)
    if Truth.TRUE not in found:
        return Match.NONE
    return Match.ALL if found == Truth.TRUE else Match.SOME


def conjunction(parts: Sequence[EventCondition]) -> EventCondition:
    """All of the conditions, of which there is at least one."""
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _and(left: Truth, right: Truth) -> Truth:
    found = Truth(0)
    for one in _EACH:
        for other in _EACH:
            if one in left and other in right:
                both = one | other
                if Truth.FALSE in both:
                    found |= Truth.FALSE
                else:
                    found |= Truth.NULL if Truth.NULL in both else Truth.TRUE
    return found


def _not(given: Truth) -> Truth:
    found = given & Truth.NULL
    if Truth.TRUE in given:
        found |= Truth.FALSE
    if Truth.FALSE in given:
        found |= Truth.TRUE
    return found
