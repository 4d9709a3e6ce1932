"""The nodes of a parsed query. Times and durations are in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MatchOperator = Literal["=", "!=", "=~", "!~"]


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """A condition on a label. A label that a series does not have is the empty text."""

    operator: MatchOperator
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Shift:
    """`offset` and `@`. `at` is a time, or `start` or `end` of the whole query."""

    offset: int = 0
    at: int | Literal["start", "end"] | None = None


@dataclass(frozen=True, slots=True)
class NumberNode:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class TextNode:
    """A text in quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """Series by their labels; with `range`, all samples of that long before each time."""

    matchers: tuple[LabelMatcher, ...]
    shift: Shift
    range: int | None = None


@dataclass(frozen=True, slots=True)
class Subquery:
    """A range of results of a query. `step` is None for the default."""

    inner: PromNode
    range: int
    step: int | None
    shift: Shift


@dataclass(frozen=True, slots=True)
class Negation:
    """`-inner`."""

    inner: PromNode


@dataclass(frozen=True, slots=True)
class PromCall:
    """A call of a function."""

    name: str
    arguments: tuple[PromNode, ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`sum by (labels) (inner)`; `without` the labels, if that is so."""

    name: str
    inner: PromNode
    parameter: PromNode | None
    labels: tuple[str, ...]
    without: bool


@dataclass(frozen=True, slots=True)
class Matching:
    """How series of two vectors are paired: `on` the labels, or ignoring them. `many` is the side of which several series
    may belong to one of the other; `include` are labels taken from that other."""

    on: bool = False
    labels: tuple[str, ...] = ()
    many: Literal["left", "right"] | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BinaryNode:
    """Two operands and what is between them. `numbers`: a comparison returns 0 or 1 (`bool`)."""

    operator: str
    left: PromNode
    right: PromNode
    matching: Matching
    numbers: bool


PromNode = NumberNode | TextNode | Selector | Subquery | Negation | PromCall | Aggregation | BinaryNode
