"""The result of a figure, and whether it meets its target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any


class Bound(Enum):
    """Which side of a target is good. A ratio is always ours over the other's."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Target:
    """A target: a bound on the ratio, or on our number itself if `absolute`."""

    bound: Bound
    number: float
    absolute: bool = False

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """True if the target is met; None if there is nothing to compare with."""
        found = ours if self.absolute else ratio
        if found is None:
            return None
        return found >= self.number if self.bound is Bound.AT_LEAST else found <= self.number

    def text(self, unit: str) -> str:
        """Returns the text for the table."""
        return f"{self.bound.value} {self.number:g}{f' {unit}' if self.absolute else ' ×'}"


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: medians over the rounds. `ratio` is the median of the rounds' own ratios, since both sides
    of a round run under the same conditions; `spread` are the smallest and the greatest of them.

    `target` None means that the line is only informative. `notes` say how it was measured, including fsync modes.
    """

    figure: str
    what: str
    unit: str
    ours: float
    other: float | None = None
    other_name: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    target: Target | None = None
    notes: tuple[str, ...] = ()

    @property
    def met(self) -> bool | None:
        """True if the target is met, False if it is missed, None if there is none or nothing to compare."""
        return None if self.target is None else self.target.met(self.ours, self.ratio)

    def with_notes(self, *notes: str) -> Result:
        """Returns a copy with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def to_json(self) -> dict[str, Any]:
        """Returns the result as plain values."""
        plain = asdict(self)
        plain["target"] = None if self.target is None else self.target.text(self.unit)
        return {**plain, "met": self.met}


@dataclass(frozen=True, slots=True)
class BenchmarkSetting:
    """Where and how a figure is measured: `folder` is on the measured disk and is emptied afterwards; `quick`
    requests a run of about a second whose numbers mean little."""

    folder: Path
    quick: bool = False
    say: Callable[[str], None] = field(default=lambda line: None)

    def scaled(self, whole: int, quick: int) -> int:
        """Returns a size: the first, or the second in a quick run."""
        return quick if self.quick else whole


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Something to measure. `heavy` ones need a machine without other work, or take minutes."""

    name: str
    title: str
    run: Callable[[BenchmarkSetting], Sequence[Result]]
    heavy: bool = False
