"""Which reader of a group reads which segment. There is no coordinator: each reader computes its own moves from the
shared state, and in whatever order the moves are made, they end in the same balance.

The rules. Each reader has a share: the segments divided evenly, some readers having one more than others (with fewer
segments than readers: one or none). The readers that own most segments get the larger shares, so no reader gives up a
segment without need. A reader above its share gives up the excess; a reader below it takes unowned segments. So a
segment moves only if that evens out the counts, and once they are even nothing moves, whatever the lag. Lag decides
which segments move, and to which reader: the segments furthest behind are assigned first, each to the reader with the
least lag.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

S = TypeVar("S")  # a segment; sortable


def shares(readers: Iterable[str], owned: Mapping[str, Collection[S]], segments: int) -> dict[str, int]:
    """How many of `segments` segments each reader should have. The shares differ by at most one and add up to
    `segments`."""
    order = sorted(readers, key=lambda reader: (-len(owned.get(reader, ())), reader))
    if not order:
        return {}
    low, extra = divmod(segments, len(order))
    return {reader: low + (place < extra) for place, reader in enumerate(order)}


def plan_moves(
    reader_name: str,
    readers: Collection[str],
    owners: Mapping[S, str | None],
    lag: Mapping[S, int],
    *,
    keep: Collection[S] = (),
) -> tuple[frozenset[S], frozenset[S]]:
    """The segments that `reader_name` gives up now, and those that it takes.

    `owners` holds every segment that has or may get events to read, with its reader; `lag` is the number of events each
    is behind. Segments in `keep` are not given up even if the share requires it, because their events are being
    processed. All of `readers` are alive. Raises nothing; a reader that is not among them does nothing.
    """
    if reader_name not in readers:
        return frozenset(), frozenset()
    owned: dict[str, list[S]] = {reader: [] for reader in readers}
    free: list[S] = []
    for segment in sorted(owners):  # type: ignore[type-var]
        owner = owners[segment]
        owned[owner].append(segment) if owner in owned else free.append(segment)
    share = shares(readers, owned, len(owners))
    load = {reader: sum(_weight(lag, segment) for segment in owned[reader]) for reader in owned}
    surplus = max(0, len(owned[reader_name]) - share[reader_name])
    # The reader that takes over a given-up segment already has at least this much lag.
    target_lag = min((load[reader] for reader in owned if len(owned[reader]) < share[reader]), default=0)
    return _segments_to_give_up(owned[reader_name], surplus, lag, keep, target_lag), _segments_to_take(
        reader_name, owned, free, share, load, lag
    )


def _segments_to_give_up(
    own: list[S], surplus: int, lag: Mapping[S, int], keep: Collection[S], target_lag: int
) -> frozenset[S]:
    """Which `surplus` segments to give up so that lag is balanced: in order of lag, furthest behind first, each
    segment goes to the side with less lag so far, the kept or the given-up ones."""
    own_lag = sum(_weight(lag, segment) for segment in own if segment in keep)
    movable = [segment for segment in _furthest_first(own, lag) if segment not in keep]
    to_move = min(surplus, len(movable))
    to_keep = len(movable) - to_move
    moved = set()
    for segment in movable:
        if to_move and (target_lag <= own_lag or not to_keep):
            to_move, target_lag = to_move - 1, target_lag + _weight(lag, segment)
            moved.add(segment)
        else:
            to_keep, own_lag = to_keep - 1, own_lag + _weight(lag, segment)
    return frozenset(moved)


def _segments_to_take(
    reader_name: str,
    owned: Mapping[str, list[S]],
    free: list[S],
    share: Mapping[str, int],
    load: dict[str, int],
    lag: Mapping[S, int],
) -> frozenset[S]:
    """Assigns the free segments, furthest behind first, each to the reader with capacity and the least lag. Returns
    the segments that `reader_name` takes."""
    capacity = {reader: share[reader] - len(owned[reader]) for reader in owned}
    own = set()
    for segment in _furthest_first(free, lag):
        able = [reader for reader in owned if capacity[reader] > 0]
        if not able:
            break
        receiver = min(able, key=lambda reader: (load[reader], -capacity[reader], reader))
        capacity[receiver] -= 1
        load[receiver] += _weight(lag, segment)
        if receiver == reader_name:
            own.add(segment)
    return frozenset(own)


def _furthest_first(segments: Iterable[S], lag: Mapping[S, int]) -> list[S]:
    return sorted(segments, key=lambda segment: (-_weight(lag, segment), segment))


def _weight(lag: Mapping[S, int], segment: S) -> int:
    """Lag + 1 rounded down to a power of four, so that readers that look at slightly different moments compute the
    same."""
    return int(4 ** (((max(lag.get(segment, 0), 0) + 1).bit_length() - 1) // 2))


def wanted_readers(segments: int, lag: int, *, events_per_reader: int, readers_max: int, running: int) -> int:
    """The recommended number of readers: enough to give each `events_per_reader` of the lag, at least one, at most
    `segments` or `readers_max`. Recommends fewer than are running only if half of them would be enough, so that the
    number does not oscillate."""
    upper_bound = max(1, min(segments, readers_max))
    wanted = min(max(1, math.ceil(lag / events_per_reader)), upper_bound)
    return wanted if wanted >= running or running > upper_bound or 2 * wanted <= running else running
