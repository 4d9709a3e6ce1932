"""Half-open ranges of numbers, `start <= number < stop`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.model.keyspace import KeyRange

Range = tuple[int, int]


def union(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers as ordered ranges that don't touch each other; none is empty."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        elif start < stop:
            found.append((start, stop))
    return found


def kept_runs(start: int, stop: int, removed: Sequence[Range]) -> list[Range]:
    """The runs of `start <= number < stop` without the removed ranges, which are in order. No run is empty."""
    found: list[Range] = []
    at = start
    for low, high in removed:
        if low >= stop:
            break
        if low > at:
            found.append((at, low))
        if high > at:
            at = high
    if at < stop:
        found.append((at, stop))
    return found


def covered(ranges: Iterable[KeyRange]) -> list[Range]:
    """The points that key ranges cover."""
    return union((each.low, each.high) for each in ranges)
