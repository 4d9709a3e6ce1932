"""Makes the rows of a SELECT from DuckDB's result: fills windows, applies functions over successive values and arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import Columns, type_of
from anabranch.query.influxql.functions import MATHEMATICS, NEIGHBOURS, TRANSFORMS
from anabranch.query.influxql.plan import Needed, SelectPlan, needed
from anabranch.query.influxql.times import TIME_MIN, US
from anabranch.query.influxql.transforms import ARITHMETIC, mathematics, transformed
from anabranch.query.influxql.windows import Point

Row = list[Any]
Found = tuple[tuple[str, ...], Iterable[Row]]
"""The values of the tags of GROUP BY, and the rows of that series."""


def series_of(plan: SelectPlan, relation: Columns, rows: Iterable[Sequence[Any]]) -> Iterator[Found]:
    """The series, with their rows: a time in nanoseconds, then a value for each selected field. To be taken one after the
    other."""
    count = len(plan.select.grouping.tags)
    for tags, group in groupby(rows, key=lambda row: tuple(row[:count])):
        values = (row[count:] for row in group)
        yield tags, _rows(plan, relation, values)


def _rows(plan: SelectPlan, relation: Columns, values: Iterable[Sequence[Any]]) -> Iterable[Row]:
    if plan.listed is not None:
        return plan.select.paging.page(_listed(plan, values))
    if plan.raw and all(isinstance(leaf, ast.Reference) for leaf in plan.leaves):
        return plan.select.paging.page(_events(plan, values))
    known = _raw_points(plan, values) if plan.raw else _aggregated(plan, relation, values)
    # InfluxDB counts the rows of each call separately, before it joins them.
    points = {leaf: plan.select.paging.page(_points(plan, leaf, known)) for leaf in plan.leaves}
    return _joined(plan, points, _defaults(plan, relation))


def _defaults(plan: SelectPlan, relation: Columns) -> dict[ast.Expression, Any]:
    """For each call or reference, the value at the times where it has none."""
    fill = plan.select.fill
    if plan.windows is None or fill.kind != "number":
        return {}
    return {leaf: int(fill.number) if _is_whole(leaf, relation) else fill.number for leaf in plan.leaves}


def _events(plan: SelectPlan, values: Iterable[Sequence[Any]]) -> Iterator[Row]:
    for at, *found in values:
        yield _row(plan, at * US, dict(zip(plan.leaves, found, strict=True)))


def _raw_points(plan: SelectPlan, values: Iterable[Sequence[Any]]) -> dict[Needed, list[Point]]:
    known: dict[Needed, list[Point]] = {each: [] for each in plan.base}
    for at, *found in values:
        for each, value in zip(plan.base, found, strict=True):
            if value is not None:
                known[each].append((at * US, value))
    return known


def _aggregated(plan: SelectPlan, relation: Columns, values: Iterable[Sequence[Any]]) -> dict[Needed, list[Point]]:
    """The values of each call, with those of the windows without values."""
    known: dict[Needed, list[Point]] = {each: [] for each in plan.base}
    begin = 0 if plan.times.start == TIME_MIN else plan.times.start
    for at, *found in values:
        time = begin if at is None else at * US
        for number, each in enumerate(plan.base):
            value, seen = found[2 * number : 2 * number + 2]
            # A percentile that is too low to pick a value gives no row; other functions of several values may be null.
            if seen and (value is not None or not _picks(each.expression)):
                known[each].append((time, value))
    if plan.windows is not None:
        for each, points in known.items():
            fill, call = plan.select.fill, each.expression
            if fill.kind == "null" and isinstance(call, ast.FunctionCall) and call.name == "count":
                fill = ast.Fill("number", 0)
            windows = plan.wider if each.beyond and plan.wider is not None else plan.windows
            known[each] = windows.filled(
                points, fill, whole=_is_whole(call, relation), descending=plan.select.descending
            )
    return known


def _picks(each: ast.Expression) -> bool:
    return isinstance(each, ast.FunctionCall) and each.name == "percentile"


def _is_whole(each: ast.Expression, relation: Columns) -> bool:
    """Whether the values are integers."""
    return type_of(each, relation) == "integer"


def _points(
    plan: SelectPlan, leaf: ast.Expression, known: Mapping[Needed, list[Point]], *, beyond: bool = False
) -> list[Point]:
    if isinstance(leaf, ast.FunctionCall) and leaf.name in TRANSFORMS:
        interval = plan.windows.interval if plan.windows else None
        inner = _points(plan, leaf.arguments[0], known, beyond=beyond or leaf.name in NEIGHBOURS)
        return transformed(leaf, inner, interval)
    return known[needed(leaf, plan.inherited, beyond=beyond)]


def _joined(
    plan: SelectPlan, points: Mapping[ast.Expression, list[Point]], defaults: Mapping[ast.Expression, Any]
) -> Iterator[Row]:
    """One row for each time at which a leaf has a value, with the values of the others at that time."""
    places = dict.fromkeys(points, 0)
    pick = max if plan.select.descending else min
    goes_on = plan.windows is not None and plan.select.fill.kind == "previous"
    values = dict(defaults)
    while heads := [found[places[leaf]][0] for leaf, found in points.items() if places[leaf] < len(found)]:
        at = pick(heads)
        values = dict(values if goes_on else defaults)
        for leaf, found in points.items():
            place = places[leaf]
            if place < len(found) and found[place][0] == at:
                values[leaf] = found[place][1]
                places[leaf] = place + 1
        yield _row(plan, at, values)


def _row(plan: SelectPlan, at: int, values: Mapping[ast.Expression, Any]) -> Row:
    return [at, *(evaluated(field.expression, values) for field in plan.select.fields)]


def _listed(plan: SelectPlan, values: Iterable[Sequence[Any]]) -> Iterator[Row]:
    """The rows of `top`, `bottom` and `distinct`."""
    call = plan.listed
    assert call is not None, "there is one"
    begin = 0 if plan.times.start == TIME_MIN else plan.times.start
    references = [leaf for leaf in plan.leaves if isinstance(leaf, ast.Reference)]
    for window, at, value, *others in values:
        if value is None:
            continue
        if call.name == "distinct":
            yield [window * US if plan.windows else begin, value]
            continue
        tags = others[: len(call.arguments) - 2]
        found: dict[ast.Expression, Any] = dict(zip(references, others[len(tags) :], strict=True))
        row: Row = [at * US]
        for field in plan.select.fields:
            row += [value, *tags] if field.expression == call else [evaluated(field.expression, found)]
        yield row


def evaluated(expression: ast.Expression, values: Mapping[ast.Expression, Any]) -> Any:
    """The value of an expression of leaves with these values; None if one of them has none, or the types don't fit."""
    match expression:
        case ast.Constant(value):
            return value
        case ast.Operation(operator, left, right):
            first, second = evaluated(left, values), evaluated(right, values)
            if first is None or second is None or isinstance(first, str) or isinstance(second, str):
                return None
            try:
                return ARITHMETIC[operator](first, second)
            except (KeyError, TypeError, OverflowError):
                return None
        case ast.FunctionCall(name, arguments) if name in MATHEMATICS:
            return mathematics(name, [evaluated(argument, values) for argument in arguments])
    return values.get(expression)


def too_many_rows() -> InvalidSql:
    """The error for a statement of too many rows."""
    return InvalidSql(
        f"the statement needs more than {limits.INFLUXQL_ROWS_MAX:,} rows; take a shorter time range, or GROUP BY time()"
    )
