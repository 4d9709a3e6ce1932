"""Where the rows of an appended batch are, in the form of the answer to the append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.model.ids import SegmentId
from anabranch.server.load.stream_loads import Sampled


class AppendedRows(NamedTuple):
    """Where the rows of a batch are; the range of each row, if there is more than one; and which were kept, if not all."""

    ranges: Sequence[tuple[SegmentId, int, int]]
    range_of_row: bytes = b""
    duplicate: bool = False
    sampled: Sampled | None = None


def appended_rows(runs: Sequence[tuple[SegmentId, int, Any]]) -> AppendedRows:
    """From the ranges of an acknowledgement: segment, first offset, rows."""
    ranges = [(segment, start, len(rows)) for segment, start, rows in runs]
    if len(runs) == 1:
        return AppendedRows(ranges)
    of_row = np.zeros(sum(count for _, _, count in ranges), "<u2")
    for number, (_, _, rows) in enumerate(runs):
        of_row[rows] = number
    return AppendedRows(ranges, of_row.tobytes())
