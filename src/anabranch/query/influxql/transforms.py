"""Functions over successive values of a series."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.functions import MATHEMATICS, number_of
from anabranch.query.influxql.times import SECOND, in_unit
from anabranch.query.influxql.windows import Point


def transformed(call: ast.FunctionCall, points: Sequence[Point], interval: int | None) -> list[Point]:
    """The results of the call, each at the time of the later of the values that it is made of. `interval` is that of
    GROUP BY time(). Windows without a value are passed over."""
    known = [point for point in points if point[1] is not None]
    argument = call.arguments[1] if len(call.arguments) > 1 else None
    match call.name:
        case "cumulative_sum":
            return _sums(known)
        case "moving_average":
            assert argument is not None, "it takes two arguments"
            return _averages(known, int(number_of(argument)))
        case "elapsed":
            unit = argument.ns if isinstance(argument, ast.Duration) else 1
            return [(at, in_unit(at - before, unit)) for (before, _), (at, _) in pairwise(known)]
        case "derivative" | "non_negative_derivative":
            unit = argument.ns if isinstance(argument, ast.Duration) else interval or SECOND
            found = _derivatives(known, unit)
        case _:
            found = [(at, value - before) for (_, before), (at, value) in pairwise(known)]
    return [point for point in found if point[1] >= 0] if call.name.startswith("non_negative") else found


def _derivatives(points: Sequence[Point], unit: int) -> list[Point]:
    return [
        (at, (value - value_before) / (abs(at - before) / unit))
        for (before, value_before), (at, value) in pairwise(points)
        if at != before
    ]


def _sums(points: Sequence[Point]) -> list[Point]:
    found: list[Point] = []
    total: Any = 0
    for at, value in points:
        total += value
        found.append((at, total))
    return found


def _averages(points: Sequence[Point], count: int) -> list[Point]:
    found: list[Point] = []
    total = 0.0
    for number, (at, value) in enumerate(points):
        total += value
        if number >= count:
            total -= points[number - count][1]
        if number >= count - 1:
            found.append((at, total / count))
    return found


def _remainder(left: Any, right: Any) -> Any:
    """The remainder, with the sign of the left number, as in Go."""
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) * (1 if left >= 0 else -1)
    return math.fmod(left, right)


ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right if right else 0.0,
    "%": lambda left, right: _remainder(left, right) if right else 0,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
}


def mathematics(name: str, arguments: Sequence[Any]) -> Any:
    """The value of a function of one row; None if an argument is no number or the result is undefined."""
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in arguments):
        return None
    try:
        found = MATHEMATICS[name].compute(*arguments)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return None if isinstance(found, complex) else found
