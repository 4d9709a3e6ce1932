"""Who reads which segment of a group. Nobody is told what to do: every reader works out its own moves from the state
that all share, and whatever order they make them in, they end in the same balance.

The rules. Each reader has its share: as many segments as any other, or one more; where there are fewer segments than
readers, one or none. Who has most keeps most, so nobody gives up a segment that it need not. A reader above its share
gives up what is above it; one below it takes segments that nobody reads. So a segment moves only where that brings the
numbers closer, and once the numbers are even nothing moves, whatever the lag becomes. Lag decides what moves, and to
whom: the segments furthest behind are dealt out first, each to where least is waiting.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

S = TypeVar("S")  # a segment; sortable


def shares(readers: Iterable[str], owned: Mapping[str, Collection[S]], segments: int) -> dict[str, int]:
    """How many of so many segments each reader should have. They differ by one at most, and add up to all."""
    order = sorted(readers, key=lambda reader: (-len(owned.get(reader, ())), reader))
    if not order:
        return {}
    low, extra = divmod(segments, len(order))
    return {reader: low + (place < extra) for place, reader in enumerate(order)}


def moves(
    me: str,
    readers: Collection[str],
    owners: Mapping[S, str | None],
    lag: Mapping[S, int],
    *,
    keep: Collection[S] = (),
) -> tuple[frozenset[S], frozenset[S]]:
    """The segments that `me` gives up now, and those that it takes.

    `owners` holds every segment that has something to read, now or later, and who reads it; `lag` how many events it is
    behind. What is in `keep` is not given up, though the share demands it: its events are being worked on. Of `readers`
    each is alive. Raises nothing; a reader that is not among them does nothing.
    """
    if me not in readers:
        return frozenset(), frozenset()
    owned: dict[str, list[S]] = {reader: [] for reader in readers}
    free: list[S] = []
    for segment in sorted(owners):  # type: ignore[type-var]
        owner = owners[segment]
        owned[owner].append(segment) if owner in owned else free.append(segment)
    share = shares(readers, owned, len(owners))
    load = {reader: sum(_weight(lag, segment) for segment in owned[reader]) for reader in owned}
    surplus = max(0, len(owned[me]) - share[me])
    # Who takes over what is given up has at least this before it already.
    there = min((load[reader] for reader in owned if len(owned[reader]) < share[reader]), default=0)
    return _given_up(owned[me], surplus, lag, keep, there), _granted(me, owned, free, share, load, lag)


def _given_up(mine: list[S], surplus: int, lag: Mapping[S, int], keep: Collection[S], there: int) -> frozenset[S]:
    """So many of one's own, such that the lag is shared: the segments furthest behind first, each stays or goes, to where
    less is."""
    here = sum(_weight(lag, segment) for segment in mine if segment in keep)
    movable = [segment for segment in _furthest_first(mine, lag) if segment not in keep]
    go = min(surplus, len(movable))
    stay = len(movable) - go
    gone = set()
    for segment in movable:
        if go and (there <= here or not stay):
            go, there = go - 1, there + _weight(lag, segment)
            gone.add(segment)
        else:
            stay, here = stay - 1, here + _weight(lag, segment)
    return frozenset(gone)


def _granted(
    me: str,
    owned: Mapping[str, list[S]],
    free: list[S],
    share: Mapping[str, int],
    load: dict[str, int],
    lag: Mapping[S, int],
) -> frozenset[S]:
    """The free segments dealt out, the furthest behind first, each to whoever has room and least before it."""
    room = {reader: share[reader] - len(owned[reader]) for reader in owned}
    mine = set()
    for segment in _furthest_first(free, lag):
        able = [reader for reader in owned if room[reader] > 0]
        if not able:
            break
        taker = min(able, key=lambda reader: (load[reader], -room[reader], reader))
        room[taker] -= 1
        load[taker] += _weight(lag, segment)
        if taker == me:
            mine.add(segment)
    return frozenset(mine)


def _furthest_first(segments: Iterable[S], lag: Mapping[S, int]) -> list[S]:
    return sorted(segments, key=lambda segment: (-_weight(lag, segment), segment))


def _weight(lag: Mapping[S, int], segment: S) -> int:
    """The lag in powers of four: readers that look a moment apart shall see the same."""
    return int(4 ** (((max(lag.get(segment, 0), 0) + 1).bit_length() - 1) // 2))


def wanted_readers(segments: int, lag: int, *, events_per_reader: int, readers_max: int, running: int) -> int:
    """How many readers there should be: enough to share the lag by `events_per_reader`, at least one, no more than
    segments or `readers_max`. Fewer than are running only where half of them would do, so that the number does not swing."""
    most = max(1, min(segments, readers_max))
    wanted = min(max(1, math.ceil(lag / events_per_reader)), most)
    return wanted if wanted >= running or running > most or 2 * wanted <= running else running
