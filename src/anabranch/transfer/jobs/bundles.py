"""Grouping ranges that are too small to be moved one by one."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import limits
from anabranch.transfer.jobs.record import JobRange


def bundled(ranges: Sequence[JobRange]) -> list[Sequence[JobRange]]:
    """Group ranges into bundles; one task moves each."""
    edges = bundles(
        [each.size for each in ranges], bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_BUNDLE_RANGES_MAX
    )
    return [ranges[first:stop] for first, stop in edges]


def bundles(sizes: Sequence[int], *, bytes_max: int, count_max: int) -> list[tuple[int, int]]:
    """Group neighbours up to `bytes_max` and `count_max`, as half-open index ranges. Each group holds at least one."""
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
