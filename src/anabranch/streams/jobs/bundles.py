"""Putting ranges together, where one by one they would be too small."""

from __future__ import annotations

from collections.abc import Sequence


def bundles(sizes: Sequence[int], *, bytes_max: int, count_max: int) -> list[tuple[int, int]]:
    """Neighbours put together up to `bytes_max` and `count_max`, as half-open index ranges. Each holds at least one."""
    found: list[tuple[int, int]] = []
    first = held = 0
    for index, size in enumerate(sizes):
        if index > first and (held + size > bytes_max or index - first >= count_max):
            found.append((first, index))
            first, held = index, 0
        held += size
    if first < len(sizes):
        found.append((first, len(sizes)))
    return found
