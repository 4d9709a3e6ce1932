"""What a SELECT asks of the relations that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import Columns
from anabranch.query.influxql.conditions import split_condition
from anabranch.query.influxql.functions import (
    AGGREGATES,
    LISTS,
    MATHEMATICS,
    NEIGHBOURS,
    TRANSFORMS,
    check_call,
    number_of,
)
from anabranch.query.influxql.times import ALL_TIMES, TIME_MAX, TIME_MIN, TimeRange
from anabranch.query.influxql.windows import Windows, check_windows


@dataclass(frozen=True, slots=True)
class Needed:
    """A call or a reference whose values a query has to return. `beyond`: also the values of the window just outside
    the time range, which the first result of a function over neighbours needs."""

    expression: ast.Expression
    beyond: bool = False


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """A statement whose wildcards are written out. `leaves` are the calls and references that its expressions are made
    of; `base` those of them, and in them, that a query has to return. `wider` are the windows with the one beside the time
    range, if any of `base` needs it. `inherited`: the interval is that of an outer statement."""

    select: ast.Select
    times: TimeRange
    condition: ast.Expression | None
    windows: Windows | None
    wider: Windows | None
    leaves: tuple[ast.Expression, ...]
    base: tuple[Needed, ...]
    inherited: bool = False

    @property
    def read(self) -> TimeRange:
        """The time range of all that has to be read."""
        return self.wider.times if self.wider else self.times

    @property
    def mixed(self) -> bool:
        """Whether a part of `base` needs more than the time range, and another does not."""
        return self.read != self.times and not all(each.beyond for each in self.base)

    @property
    def selector(self) -> ast.FunctionCall | None:
        """The selector whose selected events are the rows; None unless there is exactly one."""
        calls = [leaf for leaf in self.leaves if isinstance(leaf, ast.FunctionCall)]
        only = len(calls) == 1 and calls[0].name in AGGREGATES and AGGREGATES[calls[0].name].picked is not None
        return calls[0] if only else None

    @property
    def raw(self) -> bool:
        """Whether the query returns the values of events, without a function over several."""
        return not any(isinstance(each.expression, ast.FunctionCall) for each in self.base)

    @property
    def listed(self) -> ast.FunctionCall | None:
        """The call that returns several rows for a window, if there is one."""
        found = self.leaves[0] if self.leaves else None
        return found if isinstance(found, ast.FunctionCall) and found.name in LISTS else None


def planned(select: ast.Select, now: int, *, bounds: TimeRange = ALL_TIMES, inherited: bool = False) -> SelectPlan:
    """The plan of a statement whose wildcards are written out. For a subquery, `bounds` are the times that the outer
    statement reads; `inherited` is true if the interval is the outer statement's. Raises InvalidSql for one that has no
    meaning."""
    own, condition = split_condition(select.where, now, select.zone)
    times = own.within(bounds)
    grouping, windows = select.grouping, None
    leaves = tuple(dict.fromkeys(leaf for field in select.fields for leaf in _leaves(field.expression)))
    base = tuple(dict.fromkeys(each for leaf in leaves for each in _base(leaf, inherited)))
    calls = [leaf for leaf in leaves if isinstance(leaf, ast.FunctionCall)]
    for call in calls:
        check_call(call, grouped=None if inherited else grouping.interval is not None)
    plan = SelectPlan(select, times, condition, None, None, leaves, base)
    _check_mixture(plan, calls)
    if grouping.interval is not None:
        if not calls and not inherited:
            raise InvalidSql("GROUP BY requires at least one aggregate function")
        if times.stop == TIME_MAX:
            times = TimeRange(times.start, now)
        windows = Windows(grouping.interval, grouping.offset, times, select.zone)
        if times.start != TIME_MIN and times.start <= times.stop and select.fill.kind != "none":
            check_windows(windows.start_of(times.start), times.stop, grouping.interval)
    wider = None if windows is None else _wider(windows, own, bounds, base, select)
    return SelectPlan(select, times, condition, windows, wider, leaves, base, inherited)


def _wider(windows: Windows, own: TimeRange, bounds: TimeRange, base: Sequence[Needed], select: ast.Select) -> Windows:
    """The windows with one before the statement's own time range (after it, if the last is first), if any of `base` needs
    it. The outer statement's times are never left."""
    if not any(each.beyond for each in base):
        return windows
    times, interval = windows.times, windows.interval
    if select.descending:
        stop = min(times.stop if own.stop == TIME_MAX else own.stop, TIME_MAX - 1 - interval) + interval
        return replace(windows, times=TimeRange(times.start, min(stop, bounds.stop)))
    if own.start == TIME_MIN:
        return windows
    start = max(own.start, TIME_MIN + 1 + interval) - interval
    return replace(windows, times=TimeRange(max(start, bounds.start), times.stop))


def _check_mixture(plan: SelectPlan, calls: Sequence[ast.FunctionCall]) -> None:
    references = [leaf for leaf in plan.leaves if isinstance(leaf, ast.Reference)]
    listed = [call.name for call in calls if call.name in LISTS]
    if listed and (len(calls) > 1 or (listed[0] == "distinct" and references)):
        raise InvalidSql(f"aggregate function {listed[0]}() can't be combined with other functions or fields")
    if listed and any(isinstance(field.expression, ast.Operation) for field in plan.select.fields):
        raise InvalidSql(f"{listed[0]}() can't be part of an expression")
    most, paging = calls[0].arguments[-1] if listed else None, plan.select.paging
    if isinstance(most, ast.Constant) and paging.limit is not None and number_of(most) > paging.limit:
        raise InvalidSql(
            f"limit ({most.value}) in {listed[0]} function can not be larger than the LIMIT ({paging.limit}) in the select "
            "statement"
        )
    if calls and references and not listed and plan.selector is None:
        raise InvalidSql("mixing aggregate and non-aggregate queries is not supported")


def _leaves(expression: ast.Expression) -> Iterator[ast.Expression]:
    match expression:
        case ast.FunctionCall(name, arguments) if name in MATHEMATICS:
            check_call(expression, grouped=False)
            for argument in arguments:
                yield from _leaves(argument)
        case ast.FunctionCall() | ast.Reference():
            yield expression
        case ast.Operation(_, left, right):
            yield from _leaves(left)
            yield from _leaves(right)
        case ast.Constant():
            return
        case _:
            raise InvalidSql("expected fields, functions and numbers in SELECT")


def _base(leaf: ast.Expression, inherited: bool, *, beyond: bool = False) -> Iterator[Needed]:
    if isinstance(leaf, ast.FunctionCall) and leaf.name in TRANSFORMS:
        yield from _base(leaf.arguments[0], inherited, beyond=beyond or leaf.name in NEIGHBOURS)
    else:
        yield needed(leaf, inherited, beyond=beyond)


def needed(leaf: ast.Expression, inherited: bool, *, beyond: bool) -> Needed:
    """What a query has to return for the argument of functions over neighbours (`beyond`), or another leaf. Only where the
    interval is inherited do such functions have one, and fields as arguments."""
    return Needed(leaf, beyond and (inherited or isinstance(leaf, ast.FunctionCall)))


def used_fields(plan: SelectPlan, relation: Columns) -> list[str]:
    """The relation's fields that the statement selects."""
    parts = (part for leaf in plan.leaves for part in ast.walk(leaf))
    names = {part.name: None for part in parts if isinstance(part, ast.Reference) and _is_field(part, relation)}
    return list(names)


def _is_field(reference: ast.Reference, relation: Columns) -> bool:
    """Whether there is such a field that can be read as the type behind `::`."""
    kind = relation.fields.get(reference.name)
    numbers = ("float", "integer")
    return kind is not None and (
        reference.cast in (None, "field", kind) or (kind in numbers and reference.cast in numbers)
    )
