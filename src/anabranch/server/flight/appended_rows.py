"""Where the rows of an appended batch are, in the form of the answer to the append: also of a batch that was appended before,
of which the store keeps the ranges alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.core.routing import key_points
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView
from anabranch.server.load.stream_loads import Sampled
from anabranch.writing.acknowledgement import Rows


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


def repeated_rows(
    view: StreamView, batch: pa.RecordBatch, ranges: Sequence[tuple[SegmentId, int, int]]
) -> list[tuple[SegmentId, int, Rows]]:
    """The ranges (segment, first offset, number of events) with the numbers of their rows, by the routing keys. Empty where
    these don't tell: for events without a key, and for ranges in segments with the same keys, one a successor of
    the other."""
    key = view.info.schema.key
    if key not in batch.schema.names or batch.column(key).null_count:
        return []
    if any(segment not in view.segments for segment, _, _ in ranges):
        return []
    parts = sorted((view.segments[segment].range, segment, start, count) for segment, start, count in ranges)
    if any(one[0].overlaps(other[0]) for one, other in pairwise(parts)):
        return []
    points = key_points(batch.column(key), spread_from=0).per_row()
    found = []
    for keys, segment, start, count in parts:
        rows = np.flatnonzero((points >= np.uint64(keys.low)) & (points <= np.uint64(keys.high - 1)))
        if len(rows) != count:
            return []
        found.append((segment, start, rows))
    return found
