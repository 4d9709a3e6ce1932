"""Validates the rows of a batch against the checks of their stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core.check_condition import CheckCondition, parse_condition
from anabranch.core.python_values import python_values
from anabranch.errors import InvalidSql, SchemaMismatch
from anabranch.model.check import StreamCheck

__all__ = ["CHECK_COLUMN", "divided", "refuse_unusable", "refuse_violations", "violations"]

CHECK_COLUMN: Final = "_check"
"""In a stream of violations: the name of the check that the event breaks."""

_SHOWN_CHARS = 100


def refuse_unusable(checks: Sequence[StreamCheck], columns: pa.Schema) -> None:
    """Raise InvalidSql for a check that can't be evaluated over these columns."""
    nothing = pa.record_batch([pa.nulls(1, field.type) for field in columns], schema=columns)
    for check in checks:
        for batch in (nothing, nothing.slice(0, 0)):
            try:
                parse_condition(check.condition).holds(batch)
            except InvalidSql as exc:
                raise InvalidSql(f"check '{check.name}': {exc}") from exc


def refuse_violations(rows: pa.RecordBatch | pa.Table, checks: Sequence[StreamCheck]) -> None:
    """Raise SchemaMismatch for the first row for which a check is false."""
    begin = 0
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else (rows,):
        first = next(violations(batch, checks, range(begin, begin + batch.num_rows)), None)
        if first is not None:
            raise first
        begin += batch.num_rows


def divided(rows: pa.Table, checks: Sequence[StreamCheck]) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows that break no check; and by the name of the stream of violations those that do, with `CHECK_COLUMN`: the
    first such check. Each in their order. Raises SchemaMismatch for the first row that breaks a check without such a
    stream."""
    refuse_violations(rows, [each for each in checks if each.violations is None])
    diverting = [each for each in checks if each.violations is not None]
    if not rows.num_rows:
        return rows, {}
    (batch,) = rows.combine_chunks().to_batches()
    broken = _first_broken(batch, diverting)
    if broken is None:
        return rows, {}
    names = pa.array([each.name for each in diverting])
    found = {}
    for stream in sorted({str(each.violations) for each in diverting}):
        wanted = [number for number, each in enumerate(diverting) if each.violations == stream]
        chosen = np.flatnonzero(np.isin(broken, wanted))
        if chosen.size:
            reasons = names.take(pa.array(broken[chosen]))
            found[stream] = rows.take(pa.array(chosen)).append_column(CHECK_COLUMN, reasons)
    return rows.filter(pa.array(broken < 0)), found


def violations(
    batch: pa.RecordBatch, checks: Sequence[StreamCheck], numbers: Sequence[int]
) -> Iterator[SchemaMismatch]:
    """An error for each row for which a check is false, in order. It names the first such check. `numbers` are the
    numbers of the rows."""
    if not batch.num_rows:
        return
    first_broken = _first_broken(batch, checks)
    if first_broken is None:
        return
    for row in np.flatnonzero(first_broken >= 0).tolist():
        check = checks[first_broken[row]]
        yield _error(batch.slice(row, 1), numbers[row], check, parse_condition(check.condition))


def _first_broken(batch: pa.RecordBatch, checks: Sequence[StreamCheck]) -> npt.NDArray[np.int64] | None:
    """For each row the number of the first check that is false, or -1; None if all rows pass."""
    held = [_holds(batch, check) for check in checks]
    if not any(each.false_count for each in held):
        return None
    first_broken = np.full(batch.num_rows, -1, np.int64)
    for number in range(len(checks) - 1, -1, -1):
        first_broken[~held[number].fill_null(True).to_numpy(zero_copy_only=False)] = number
    return first_broken


def _holds(batch: pa.RecordBatch, check: StreamCheck) -> pa.BooleanArray:
    try:
        return parse_condition(check.condition).holds(batch)
    except InvalidSql as exc:
        raise SchemaMismatch(f"check '{check.name}' ({check.condition:.200}) can't be evaluated: {exc}") from exc


def _error(row: pa.RecordBatch, number: int, check: StreamCheck, condition: CheckCondition) -> SchemaMismatch:
    lower = {name.lower(): name for name in row.schema.names}
    names = [name if name in row.schema.names else lower[name.lower()] for name in condition.columns]
    values = ", ".join(f"{name} = {python_values(row.column(name))[0]!r:.{_SHOWN_CHARS}}" for name in names)
    hint = (
        ""
        if check.violations is None
        else f"; it goes to '{check.violations}' if it is written by a transaction, Store.write, anabranch write or Spark"
    )
    return SchemaMismatch(
        f"row {number} breaks the check '{check.name}' ({check.condition:.200}): {values or 'it is false'}{hint}",
        column=names[0] if names else None,
        row=number,
    )
