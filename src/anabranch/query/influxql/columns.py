"""The tags and fields that a statement reads, and the types of the columns of its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.functions import AGGREGATES, LISTS, MATHEMATICS

CONSTANT_TYPES: Final[Mapping[type, ast.FieldType]] = {bool: "boolean", int: "integer", float: "float", str: "string"}
_CASTS: Final[Mapping[str, ast.FieldType]] = {
    "float": "float",
    "integer": "integer",
    "string": "string",
    "boolean": "boolean",
    "tag": "string",
}
_RESULTS: Final[Mapping[str, ast.FieldType]] = {
    "derivative": "float",
    "non_negative_derivative": "float",
    "moving_average": "float",
    "elapsed": "integer",
}
_ORDER: Final[tuple[ast.FieldType, ...]] = ("float", "integer", "string", "boolean")


class Columns(Protocol):
    """The tags and the fields that there are."""

    @property
    def tags(self) -> Sequence[str]:
        """Their names, in order."""
        ...

    @property
    def fields(self) -> Mapping[str, ast.FieldType]:
        """The types by the names."""
        ...


def common_types(sources: Iterable[Mapping[str, ast.FieldType]]) -> dict[str, ast.FieldType]:
    """The types of the columns of several sources. A column with different types there gets the first of them in `_ORDER`."""
    found: dict[str, ast.FieldType] = {}
    for columns in sources:
        for name, kind in columns.items():
            found[name] = min(kind, found.get(name, kind), key=_ORDER.index)
    return found


def type_of(expression: ast.Expression, columns: Columns) -> ast.FieldType | None:
    """The type of an expression's values; None if it has no values."""
    match expression:
        case ast.Constant(bool() | int() | float() as value):
            return CONSTANT_TYPES[type(value)]
        case ast.Reference(name, cast):
            kind: ast.FieldType | None = columns.fields.get(name) or ("string" if name in columns.tags else None)
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


def _type_of_call(name: str, argument: ast.FieldType | None) -> ast.FieldType | None:
    if argument is None:
        return None
    if name in AGGREGATES:
        return AGGREGATES[name].result or argument
    if name in MATHEMATICS:
        return argument if MATHEMATICS[name].keeps_integers else "float"
    return argument if name in LISTS else _RESULTS.get(name, argument)
