"""The types of the columns of a SELECT, for outer statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.functions import AGGREGATES, LISTS, MATHEMATICS
from anabranch.query.influxql.relation import CONSTANT_TYPES, Columns, FieldType

_CASTS: Final[Mapping[str, FieldType]] = {
    "float": "float",
    "integer": "integer",
    "string": "string",
    "boolean": "boolean",
    "tag": "string",
}
_RESULTS: Final[Mapping[str, FieldType]] = {
    "derivative": "float",
    "non_negative_derivative": "float",
    "moving_average": "float",
    "elapsed": "integer",
}
_ORDER: Final[tuple[FieldType, ...]] = ("float", "integer", "string", "boolean")


def common_types(sources: Iterable[Mapping[str, FieldType]]) -> dict[str, FieldType]:
    """The types of the columns of several sources. One that is of several types there is of the first of `_ORDER`."""
    found: dict[str, FieldType] = {}
    for columns in sources:
        for name, kind in columns.items():
            found[name] = min(kind, found.get(name, kind), key=_ORDER.index)
    return found


def type_of(expression: ast.Expression, columns: Columns) -> FieldType | None:
    """The type of the values; None if there are none."""
    match expression:
        case ast.Constant(bool() | int() | float() as value):
            return CONSTANT_TYPES[type(value)]
        case ast.Reference(name, cast):
            kind: FieldType | None = columns.fields.get(name) or ("string" if name in columns.tags else None)
            return kind if kind is None or cast is None else _CASTS.get(cast, kind)
        case ast.Operation(operator, left, right):
            kinds = {type_of(left, columns), type_of(right, columns)}
            if None in kinds or "string" in kinds:
                return None
            if operator in ("&", "|", "^"):
                return "boolean" if "boolean" in kinds else "integer"
            # Also of a division: InfluxDB cuts its result off where another statement reads it.
            return "integer" if kinds == {"integer"} else "float"
        case ast.FunctionCall(name, arguments):
            return _type_of_call(name, type_of(arguments[0], columns) if arguments else None)
    return None


def _type_of_call(name: str, argument: FieldType | None) -> FieldType | None:
    if argument is None:
        return None
    if name in AGGREGATES:
        return AGGREGATES[name].result or argument
    if name in MATHEMATICS:
        return argument if MATHEMATICS[name].keeps_integers else "float"
    return argument if name in LISTS else _RESULTS.get(name, argument)
