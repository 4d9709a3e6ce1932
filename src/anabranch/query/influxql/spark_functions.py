"""The functions of InfluxQL over a window, in the SQL of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import type_of
from anabranch.query.influxql.functions import AGGREGATES, MATHEMATICS, number_of

_NEAREST: Final = {"top": "max()", "bottom": "min()", "distinct": "count(distinct())"}


def quoted(name: str) -> str:
    """A name in SQL of Spark."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in SQL of Spark."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def number_sql(number: float) -> str:
    """A number in SQL of Spark."""
    return f"{number!r}D" if isinstance(number, float) else str(number)


class SparkColumns:
    """The columns of a measurement in the SQL of Spark."""

    def __init__(self, tags: tuple[str, ...], fields: Mapping[str, ast.FieldType], time: str) -> None:
        self.tags = tags
        self.fields = fields
        self.time = quoted(time)

    def column(self, field: str) -> str:
        """A field; a number that is no integer as a double."""
        return f"double({quoted(field)})" if self.fields[field] == "float" else quoted(field)

    def tag(self, name: str) -> str:
        """A tag, the empty text where there is none."""
        return f"coalesce({quoted(name)}, '')" if name in self.tags else "''"

    def shown_tag(self, name: str) -> str:
        """A tag, null where there is none."""
        return f"nullif({quoted(name)}, '')"


class WindowSql:
    """Writes expressions of functions over the events of a window. `fill` is the result of a function without values."""

    def __init__(self, columns: SparkColumns, fill: ast.Fill) -> None:
        self._columns = columns
        self._fill = fill

    def value(self, expression: ast.Expression) -> str:
        """The value of an expression. Raises InvalidSql for what Spark's SQL can't express."""
        match expression:
            case ast.Constant(bool()) | ast.Constant(str()):
                raise InvalidSql("expected functions and numbers in the SELECT of a continuous query")
            case ast.Constant(int() | float() as number):
                return number_sql(number)
            case ast.Operation(operator, left, right):
                kinds = {type_of(left, self._columns), type_of(right, self._columns)}
                if operator in ("&", "|", "^") and kinds != {"integer"}:
                    raise InvalidSql(f"type error: operator {operator} takes integers")
                return self._operation(operator, self.value(left), self.value(right))
            case ast.FunctionCall(name, arguments) if name in MATHEMATICS:
                return MATHEMATICS[name].spark.format(*map(self.value, arguments))
            case ast.FunctionCall(name) if name in AGGREGATES:
                return self._filled(expression)
            case ast.FunctionCall(name):
                raise InvalidSql(_not_of_a_window(name))
            case ast.Reference(name):
                raise InvalidSql(
                    f"a continuous query can't select '{name}' of the event that a function picks: leave it out, or GROUP BY "
                    "it if it is a tag"
                )
        raise InvalidSql("expected functions and numbers in the SELECT of a continuous query")

    def _operation(self, operator: str, left: str, right: str) -> str:
        if operator == "/":
            return f"if({right} = 0, {left} * 0D, {left} / {right})"  # null if one of them is
        if operator == "%":
            return f"if({right} = 0, {left} * 0, {left} % {right})"
        return f"({left} {operator} {right})"

    def _filled(self, call: ast.FunctionCall) -> str:
        value = self._aggregate(call)
        if self._fill.kind != "number":
            return f"nullif({value}, 0)" if call.name == "count" else value
        if call.name == "count":
            return f"coalesce(nullif({value}, 0), {int(self._fill.number)})" if int(self._fill.number) else value
        whole = type_of(call, self._columns) == "integer"
        return f"coalesce({value}, {int(self._fill.number) if whole else number_sql(float(self._fill.number))})"

    def seen(self, call: ast.FunctionCall) -> str:
        """How many values a function sees."""
        return f"count({self._argument(call)[0]})"

    def _argument(self, call: ast.FunctionCall) -> tuple[str, ast.FieldType]:
        """The field that a function is applied to, and its type."""
        inner = call.arguments[0]
        reference = inner.arguments[0] if isinstance(inner, ast.FunctionCall) else inner
        assert isinstance(reference, ast.Reference), "it has been checked"
        kind = type_of(reference, self._columns)
        if kind is None or reference.name not in self._columns.fields:
            raise InvalidSql(
                f"there is no field '{reference.name}' yet: write a point with it before you create the continuous query"
            )
        if kind not in AGGREGATES[call.name].types:
            raise InvalidSql(f"unsupported {call.name} iterator type: {reference.name} is a {kind}")
        if kind == "string" and call.name != "count":
            raise InvalidSql(
                f"a continuous query can't store the text field '{reference.name}', which would be a tag in the result; "
                "only count() of it can be stored"
            )
        return self._cast(reference, kind), kind

    def _aggregate(self, call: ast.FunctionCall) -> str:
        field, kind = self._argument(call)
        if isinstance(call.arguments[0], ast.FunctionCall):  # count(distinct(field))
            return f"size(collect_set({field}))"
        aggregate = AGGREGATES[call.name]
        number = float(number_of(call.arguments[1])) if aggregate.numbers else 0.0
        rank = f"int({field})" if kind == "boolean" else field
        template = aggregate.spark or aggregate.sql
        return template.format(value=field, time=self._columns.time, number=number, rank=rank)

    def _cast(self, reference: ast.Reference, kind: ast.FieldType) -> str:
        stored, column = self._columns.fields[reference.name], self._columns.column(reference.name)
        if stored == kind:
            return column
        if {stored, kind} <= {"float", "integer"}:
            return f"{'double' if kind == 'float' else 'bigint'}({column})"
        raise InvalidSql(f"'{reference.name}' is a {stored}, not a {kind}")


def _not_of_a_window(name: str) -> str:
    if name in _NEAREST:
        return f"a continuous query can't have {name}(), which has several results for a window; use {_NEAREST[name]}"
    return (
        f"a continuous query can't have {name}(), which compares windows: store the function inside it, and ask for {name}() "
        "of the result"
    )
