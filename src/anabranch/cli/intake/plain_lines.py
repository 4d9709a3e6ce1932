"""Reads plain lines: each is the payload of one event of a raw stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.cli.intake.batch import IntakeBatch
from anabranch.cli.intake.source import LineBlocks
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW


def read_plain_lines(blocks: LineBlocks, *, now: Callable[[], Micros]) -> Iterator[IntakeBatch]:
    """Yields the lines without their line ends, including empty ones, as payloads. Their event time is when they
    were read."""
    for block in blocks:
        lines = block.data.removesuffix(b"\n").split(b"\n")
        if b"\r" in block.data:
            lines = [line.removesuffix(b"\r") for line in lines]
        columns = [
            pa.nulls(len(lines), pa.string()),
            pa.repeat(pa.scalar(now(), TIME_TYPE), len(lines)),
            pa.array(lines, pa.binary()),
        ]
        rows = pa.table(columns, schema=RAW.columns)
        yield IntakeBatch(rows, "line", lambda row, first=block.first: first + row)  # type: ignore[misc]
