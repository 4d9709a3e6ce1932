"""The side outputs of a statement: which further streams receive rows of its result, and the rows of each. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.names import StreamName

__all__ = [
    "HOPS",
    "HOPS_MAX",
    "OUTPUTS_COLUMN",
    "SIDE_OUTPUTS_MAX",
    "SideOutput",
    "feedback_mask",
    "outputs_sql",
    "split",
]

OUTPUTS_COLUMN: Final = "_outputs"  # bit 0: the statement's own stream; bit n: its n-th side output
SIDE_OUTPUTS_MAX: Final = 62
HOPS: Final = "hops"
"""The column of events that are fed back: how often they, or the events that they come from, were fed back."""
HOPS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SideOutput:
    """One `INTO scope.name WHEN condition`. `condition` is Spark SQL over the result's columns, on `line` of the file.

    A row goes to the first of these whose condition is true, instead of to the statement's own stream. With `copies`
    (`COPY INTO`) the row goes to this stream, and also where it would go without this side output.

    With `hops_max` (`FEEDBACK WITHIN n HOPS INTO`) the stream leads back to the statement. The condition is then false
    for a row that was fed back this often, and rows that are fed back have one hop more."""

    target: StreamName
    condition: str
    line: int
    copies: bool = False
    hops_max: int | None = None


def outputs_sql(sides: tuple[SideOutput, ...], view: str) -> str:
    """The query over a view of a result that adds `OUTPUTS_COLUMN`. Its conditions are on their lines of the file."""
    dropped = ", ".join(map(_flag, range(1, len(sides) + 1)))
    text = f"SELECT * EXCEPT ({dropped}), {_mask(sides)} AS {OUTPUTS_COLUMN} FROM (SELECT *"
    for number, side in enumerate(sides, start=1):
        padding = "\n" * (side.line - 1 - text.count("\n"))
        below = "" if side.hops_max is None else f"coalesce({HOPS}, 0) < {side.hops_max} AND "
        text += f", {padding}CASE WHEN {below}({side.condition}) THEN true ELSE false END AS {_flag(number)}"
    return f"{text} FROM {view})"


def feedback_mask(sides: tuple[SideOutput, ...]) -> int:
    """The bits of `OUTPUTS_COLUMN` that stand for streams that lead back."""
    return sum(1 << number for number, side in enumerate(sides, start=1) if side.hops_max is not None)


def _flag(number: int) -> str:
    return f"_output_{number}"


def _mask(sides: tuple[SideOutput, ...]) -> str:
    cases, copies = [], []
    for number, side in enumerate(sides, start=1):
        case = f"WHEN {_flag(number)} THEN {1 << number}L"
        if side.copies:
            copies.append(f"CASE {case} ELSE 0L END")
        else:
            cases.append(case)
    moved = f"CASE {' '.join(cases)} ELSE 1L END" if cases else "1L"
    return " | ".join([moved, *copies])


def split(batch: pa.RecordBatch, sides: int) -> Iterator[pa.RecordBatch]:
    """The rows of the statement's own stream, then those of each of its side outputs; in order, without
    `OUTPUTS_COLUMN`."""
    mask = batch.column(OUTPUTS_COLUMN)
    rows = batch.drop_columns([OUTPUTS_COLUMN])
    for number in range(sides + 1):
        bit = pa.scalar(1 << number, pa.int64())
        yield rows.filter(pc.not_equal(pc.bit_wise_and(mask, bit), pa.scalar(0, pa.int64())))
