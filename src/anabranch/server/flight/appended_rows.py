"""Where the rows of an appended batch are, as an answer says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.model.ids import SegmentId
from anabranch.server.load.stream_loads import Sampled


class Landed(NamedTuple):
    """Where the rows of a batch are; the range of each row, if there is more than one; and which were kept, if not all."""

    ranges: Sequence[tuple[SegmentId, int, int]]
    range_of_row: bytes = b""
    duplicate: bool = False
    sampled: Sampled | None = None


def landed(runs: Sequence[tuple[SegmentId, int, Any]]) -> Landed:
    """Of the landings of an acknowledgement: segment, first offset, rows."""
    ranges = [(segment, start, len(rows)) for segment, start, rows in runs]
    if len(runs) == 1:
        return Landed(ranges)
    of_row = np.zeros(sum(count for _, _, count in ranges), "<u2")
    for number, (_, _, rows) in enumerate(runs):
        of_row[rows] = number
    return Landed(ranges, of_row.tobytes())
