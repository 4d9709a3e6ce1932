"""Values on a grid of times: of many series at once, as columns of numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt

from anabranch.errors import InvalidSql

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Labels = dict[str, str]
Key = tuple[tuple[str, str], ...]
NAME: Final = "__name__"


@dataclass(frozen=True, slots=True)
class SampledSeries:
    """The samples of a series: times in milliseconds, rising, and values."""

    labels: Labels
    at: Integers
    values: Floats


@dataclass(frozen=True, slots=True)
class SeriesVector:
    """A value of each series (row) at each time of a grid (column), where `present`; NaN is a value too."""

    labels: list[Labels]
    values: Floats
    present: Bools

    @classmethod
    def empty(cls, count: int) -> SeriesVector:
        """No series, on a grid of this many times."""
        return cls([], np.empty((0, count)), np.empty((0, count), np.bool_))

    def without_name(self) -> SeriesVector:
        """The same without the names of the metrics, which a computed value doesn't have."""
        return merged(SeriesVector([without(each, (NAME,)) for each in self.labels], self.values, self.present))

    def taken(self, rows: Sequence[int]) -> SeriesVector:
        """Some of the rows."""
        return SeriesVector([self.labels[row] for row in rows], self.values[list(rows)], self.present[list(rows)])


def key_of(labels: Labels) -> Key:
    """Equal for equal labels."""
    return tuple(sorted(labels.items()))


def rows_by(series: Sequence[Labels], key: Callable[[Labels], Labels]) -> dict[Key, list[int]]:
    """The positions of series that have the same `key`."""
    found: dict[Key, list[int]] = {}
    for row, labels in enumerate(series):
        found.setdefault(key_of(key(labels)), []).append(row)
    return found


def without(labels: Labels, names: Iterable[str]) -> Labels:
    """The labels but these."""
    left_out = set(names)
    return {name: value for name, value in labels.items() if name not in left_out}


def only(labels: Labels, names: Iterable[str]) -> Labels:
    """These of the labels, as far as there are."""
    kept = set(names)
    return {name: value for name, value in labels.items() if name in kept}


def merged(vector: SeriesVector, refusal: str = "vector cannot contain metrics with the same labelset") -> SeriesVector:
    """One row for rows of the same labels, without rows that have no value. Raises InvalidSql if two of the same labels
    have a value at one time."""
    used = np.flatnonzero(vector.present.any(axis=1)).tolist()
    rows: dict[Key, list[int]] = {}
    for row in used:
        rows.setdefault(key_of(vector.labels[row]), []).append(row)
    if len(rows) == len(used):
        return vector if len(used) == len(vector.labels) else vector.taken(used)
    firsts = vector.taken([each[0] for each in rows.values()])
    for position, same in enumerate(rows.values()):
        for row in same[1:]:
            if (firsts.present[position] & vector.present[row]).any():
                raise InvalidSql(refusal)
            firsts.values[position] = np.where(vector.present[row], vector.values[row], firsts.values[position])
            firsts.present[position] |= vector.present[row]
    return firsts


def number_text(value: float) -> str:
    """The shortest digits that are the number, without an exponent."""
    text = repr(value)
    if "e" in text:
        text = f"{Decimal(text):f}"
    elif text.endswith(("n", "f")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[text]
    return text.removesuffix(".0")
