"""The parts of a condition that the catalog can decide: comparisons of the event time and the append time with
constants, and tests of the routing key for equality, joined by AND, OR and NOT.

Reads the tree of DuckDB's parser. Whatever it does not know, or is not sure to understand, is decided by reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from anabranch.core.event_condition import (
    AllOf,
    AnyTest,
    EventCondition,
    KeyTest,
    Negated,
    OneOf,
    TimeTest,
    conjunction,
)
from anabranch.core.routing import key_text, point_of
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema

Tree = Mapping[str, Any]
Constant = Callable[[Tree], tuple[str, Any]]

_TIMES: Final = ("VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER")
_END: Final = 1 << 63
_MIRRORED: Final = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}


class ConditionReader:
    """Reads conditions on streams of one schema. `constant` returns the type and the value of an expression without
    columns: for the types of times, its text and its µs since 1970 UTC."""

    def __init__(self, schema: StreamSchema, constant: Constant) -> None:
        self._constant = constant
        self._time = None if schema.time is None else schema.time.lower()
        self._key = None if schema.key is None else schema.key.lower()
        self._key_type = None if schema.key is None else schema.columns.field(schema.key).type
        if schema.time is not None and schema.columns.field(schema.time).type != TIME_TYPE:
            self._time = None

    def condition(self, tree: Tree) -> EventCondition:
        """What is known of a condition."""
        children = tree.get("children", ())
        match tree.get("type"):
            case "CONJUNCTION_AND":
                return AllOf(tuple(self.condition(each) for each in children))
            case "CONJUNCTION_OR":
                return OneOf(tuple(self.condition(each) for each in children))
            case "OPERATOR_NOT" if len(children) == 1:
                return Negated(self.condition(children[0]))
            case "COMPARE_IN" if len(children) > 1:
                return self._keys(children[0], children[1:])
            case "COMPARE_BETWEEN":
                low = self._comparison("COMPARE_GREATERTHANOREQUALTO", tree["input"], tree["lower"])
                return conjunction([low, self._comparison("COMPARE_LESSTHANOREQUALTO", tree["input"], tree["upper"])])
            case relation if relation in _MIRRORED:
                if _column(tree["left"]) is None:
                    return self._comparison(_MIRRORED[relation], tree["right"], tree["left"])
                return self._comparison(relation, tree["left"], tree["right"])
        return AnyTest()

    def _comparison(self, relation: str, left: Tree, right: Tree) -> EventCondition:
        column = _column(left)
        if column is None or _has_columns(right):
            return AnyTest()
        if column in ("_appended", self._time):
            return self._time_test(relation, right, appended=column == "_appended")
        if relation == "COMPARE_EQUAL":
            return self._keys(left, [right])
        return AnyTest()

    def _time_test(self, relation: str, right: Tree, *, appended: bool) -> EventCondition:
        kind, value = self._constant(right)
        micros = value[1] if kind in _TIMES else None
        if micros is None:
            return AnyTest()
        match relation:
            case "COMPARE_EQUAL":
                return TimeTest(micros, micros + 1, appended)
            case "COMPARE_LESSTHAN":
                return TimeTest(-_END, micros, appended)
            case "COMPARE_LESSTHANOREQUALTO":
                return TimeTest(-_END, micros + 1, appended)
            case "COMPARE_GREATERTHAN":
                return TimeTest(micros + 1, _END, appended)
            case _:
                return TimeTest(micros, _END, appended)

    def _keys(self, left: Tree, values: Sequence[Tree]) -> EventCondition:
        if self._key is None or _column(left) != self._key:
            return AnyTest()
        points = []
        for each in values:
            text = None if _has_columns(each) else self._key_text(*self._constant(each))
            if text is None:
                return AnyTest()
            points.append(point_of(text))
        return KeyTest(tuple(points))

    def _key_text(self, kind: str, value: Any) -> str | None:
        """The text by which an equal key is routed; None if DuckDB would convert the key to compare it."""
        if pa.types.is_string(self._key_type) and kind == "VARCHAR":
            return None if value[0] is None else str(value[0])
        if pa.types.is_integer(self._key_type) and kind in _INTEGERS:
            return key_text(value)
        return None


def _column(tree: Tree) -> str | None:
    """The name of a column, in lower case, if that is all."""
    named = tree.get("column_names", ())
    return str(named[0]).lower() if tree.get("class") == "COLUMN_REF" and len(named) == 1 else None


def _has_columns(tree: Any) -> bool:
    """True if an expression depends on columns, or compares text in its own way."""
    if isinstance(tree, dict):
        if tree.get("class") in ("COLUMN_REF", "COLLATE", "LAMBDA", "STAR"):
            return True
        return any(_has_columns(each) for each in tree.values())
    return isinstance(tree, list) and any(_has_columns(each) for each in tree)
