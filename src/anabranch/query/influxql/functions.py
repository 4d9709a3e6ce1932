"""The functions of InfluxQL: which there are, what they take, and the SQL of those that DuckDB computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast

_NUMBERS: Final[tuple[ast.FieldType, ...]] = ("float", "integer")
_ALL: Final[tuple[ast.FieldType, ...]] = ("float", "integer", "string", "boolean")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over the values of a window, as SQL with placeholders for the `value`, the `time` and its second argument, the
    `number`. A selector returns one of the values; `picked` is the SQL for another column, `wanted`, of the same row."""

    sql: str
    types: tuple[ast.FieldType, ...] = _NUMBERS
    result: ast.FieldType | None = None
    picked: str | None = None
    numbers: int = 0
    spark: str | None = None
    """The SQL for Spark, if it differs. Its placeholder `rank` is the value as a number."""


def _first_by(order: str) -> str:
    return f"first({{wanted}} ORDER BY {order}) FILTER (WHERE {{value}} IS NOT NULL)"


def _nearest_rank(listed: str) -> str:
    """The element of a sorted list at a percentile; NULL beyond both ends."""
    place = "greatest(CAST(floor(count({value}) * {number!r}::DOUBLE / 100 + 0.5) AS BIGINT), 0)"
    return f"list_sort(list({listed}) FILTER (WHERE {{value}} IS NOT NULL))[{place}]"


_EARLIEST: Final = _first_by("{time}, {value} DESC")
_LATEST: Final = _first_by("{time} DESC, {value} DESC")
AGGREGATES: Final = {
    "count": Aggregate("count({value})", _ALL, "integer"),
    "sum": Aggregate("sum({value})"),
    "mean": Aggregate("avg({value})", result="float"),
    "median": Aggregate("median({value})", result="float"),
    "stddev": Aggregate("stddev_samp({value})", result="float"),
    "spread": Aggregate("(max({value}) - min({value}))"),
    "min": Aggregate("min({value})", (*_NUMBERS, "boolean"), picked=_first_by("{value}, {time}")),
    "max": Aggregate("max({value})", (*_NUMBERS, "boolean"), picked=_first_by("{value} DESC, {time}")),
    "first": Aggregate(
        _EARLIEST,
        _ALL,
        picked=_EARLIEST,
        spark="min_by({value}, struct({time}, -{rank})) FILTER (WHERE {value} IS NOT NULL)",
    ),
    "last": Aggregate(
        _LATEST,
        _ALL,
        picked=_LATEST,
        spark="max_by({value}, struct({time}, {rank})) FILTER (WHERE {value} IS NOT NULL)",
    ),
    "percentile": Aggregate(
        _nearest_rank("{value}"),
        picked=_nearest_rank("{{'value': {value}, 'time': {time}, 'wanted': {wanted}}}") + ".wanted",
        numbers=1,
        spark="get(sort_array(collect_list({value})), int(floor(count({value}) * {number!r}D / 100 + 0.5D)) - 1)",
    ),
}
TRANSFORMS: Final = {
    "derivative": (1, 2),
    "non_negative_derivative": (1, 2),
    "difference": (1, 1),
    "non_negative_difference": (1, 1),
    "cumulative_sum": (1, 1),
    "moving_average": (2, 2),
    "elapsed": (1, 2),
}
"""Functions over successive values of a series, with the number of arguments that they take."""
NEIGHBOURS: Final = frozenset(TRANSFORMS) - {"cumulative_sum"}
"""Functions over successive values whose first result needs the window before the time range."""


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of the numbers of one row: how it is computed, and Spark's SQL with places for its arguments."""

    compute: Callable[..., Any]
    spark: str
    arguments: int = 1
    keeps_integers: bool = False


def _round(number: float) -> int:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)


MATHEMATICS: Final = {
    **{name: RowFunction(getattr(math, name), f"{name}({{}})") for name in ("atan", "cos", "exp", "sin", "tan")},
    **{name: RowFunction(getattr(math, name), f"{name}({{}})") for name in ("log2", "log10")},
    **{name: RowFunction(getattr(math, name), f"nanvl({name}({{}}), NULL)") for name in ("acos", "asin", "sqrt")},
    "abs": RowFunction(abs, "abs({})", keeps_integers=True),
    "ceil": RowFunction(math.ceil, "double(ceil({}))", keeps_integers=True),
    "floor": RowFunction(math.floor, "double(floor({}))", keeps_integers=True),
    "round": RowFunction(_round, "round({})", keeps_integers=True),
    "ln": RowFunction(math.log, "ln({})"),
    "log": RowFunction(math.log, "log({1}, {0})", 2),
    "atan2": RowFunction(math.atan2, "atan2({}, {})", 2),
    "pow": RowFunction(math.pow, "nanvl(pow({}, {}), NULL)", 2),
}
LISTS: Final = ("top", "bottom", "distinct")
"""Functions that return several rows for a window."""

OF_NUMBERS: Final = (frozenset(TRANSFORMS) - {"elapsed"}) | {"top", "bottom"}
"""Those of them, and of the lists, that take numbers only."""


def check_call(call: ast.FunctionCall, *, grouped: bool | None) -> None:
    """Raise InvalidSql unless the call is one that there is, with arguments that it takes. `grouped`: by time; None by that
    of an outer statement."""
    name, arguments = call.name, call.arguments
    if name in AGGREGATES:
        _check_count(name, len(arguments), 1 + AGGREGATES[name].numbers)
        for argument in arguments[1:]:
            number_of(argument)
        if name != "count" or not _is_distinct(arguments[0]):
            _check_reference(name, arguments[0])
    elif name in TRANSFORMS:
        _check_count(name, len(arguments), *TRANSFORMS[name])
        _check_transform(call, grouped=grouped)
    elif name in MATHEMATICS:
        _check_count(name, len(arguments), MATHEMATICS[name].arguments)
    elif name == "distinct":
        _check_count(name, len(arguments), 1)
        _check_reference(name, arguments[0])
    elif name in ("top", "bottom"):
        if len(arguments) < 2:
            raise InvalidSql(f"invalid number of arguments for {name}, expected at least 2, got {len(arguments)}")
        last = arguments[-1]
        if not isinstance(last, ast.Constant) or not isinstance(last.value, int) or last.value < 1:
            raise InvalidSql(f"{name} takes a whole number above 0 as its last argument")
        for each in arguments[:-1]:
            _check_reference(name, each)
    else:
        raise InvalidSql(f"undefined function {name}(); {_list()}")


def _check_transform(call: ast.FunctionCall, *, grouped: bool | None) -> None:
    name, inner = call.name, call.arguments[0]
    if isinstance(inner, ast.FunctionCall):
        if inner.name in LISTS:
            raise InvalidSql(f"{name} can't be applied to {inner.name}")
        if inner.name not in TRANSFORMS and grouped is False:
            raise InvalidSql(f"{name} aggregate requires a GROUP BY interval")
        check_call(inner, grouped=grouped)
    else:
        _check_reference(name, inner)
        if grouped:
            raise InvalidSql(f"aggregate function required inside the call to {name}")
    if name == "moving_average":
        if not float(number_of(call.arguments[1])).is_integer():
            raise InvalidSql("second argument for moving_average must be an integer")
        if number_of(call.arguments[1]) < 2:
            raise InvalidSql("moving_average window must be greater than 1")
    elif len(call.arguments) == 2:
        unit = call.arguments[1]
        if not isinstance(unit, ast.Duration) or unit.ns <= 0:
            raise InvalidSql(f"{name} takes a duration above 0 as its second argument, such as 1s")


def number_of(expression: ast.Expression) -> float:
    """The number that is written there. Raises InvalidSql."""
    if (
        isinstance(expression, ast.Constant)
        and isinstance(expression.value, int | float)
        and not isinstance(expression.value, bool)
    ):
        return expression.value
    raise InvalidSql("expected a number as an argument of a function")


def _check_count(name: str, found: int, least: int, most: int | None = None) -> None:
    if not least <= found <= (most or least):
        wanted = str(least) if most in (None, least) else f"at least {least} but no more than {most}"
        raise InvalidSql(f"invalid number of arguments for {name}, expected {wanted}, got {found}")


def _check_reference(name: str, argument: ast.Expression) -> None:
    if not isinstance(argument, ast.Reference):
        raise InvalidSql(f"expected field argument in {name}()")


def _is_distinct(argument: ast.Expression) -> bool:
    return isinstance(argument, ast.FunctionCall) and argument.name == "distinct" and len(argument.arguments) == 1


def _list() -> str:
    return f"there are {', '.join(sorted((*AGGREGATES, *TRANSFORMS, *MATHEMATICS, *LISTS)))}"
