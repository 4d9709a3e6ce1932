"""Putting ranges together, where one by one they would be too small."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import limits
from anabranch.streams.jobs.row import Range


def bundled(ranges: Sequence[Range]) -> list[Sequence[Range]]:
    """Ranges as they are moved by one task after another."""
    edges = bundles(
        [each.size for each in ranges], bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_BUNDLE_RANGES_MAX
    )
    return [ranges[first:stop] for first, stop in edges]


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
