"""The WHERE of a statement: its time range, and the rest as SQL of DuckDB."""

from __future__ import annotations

from typing import Final

from anabranch.errors import InvalidSql
from anabranch.query.influxql import spark_functions as spark
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.derived import DerivedRows
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.times import TimeRange, parse_time
from anabranch.query.sql_text import literal, number_sql

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "&", "|", "^")
_COMPARED: Final = ("=", "!=", "<", "<=", ">", ">=")


def split_condition(
    where: ast.Expression | None, now: int, zone: str | None = None
) -> tuple[TimeRange, ast.Expression | None]:
    """The time range of a condition, and the rest of the condition. Conditions on the time are intersected, even if OR joins
    them. Raises InvalidSql."""
    match where:
        case None:
            return TimeRange(), None
        case ast.Operation("AND" | "OR" as operator, left, right):
            first, rest = split_condition(left, now, zone)
            second, other = split_condition(right, now, zone)
            both = first.within(second)
            if rest is None or other is None:
                return both, other if rest is None else rest
            return both, ast.Operation(operator, rest, other)
        case ast.Operation(operator, ast.Reference(name), right) if name.lower() == "time":
            return _time_range(operator, _moment(right, now, zone)), None
        case ast.Operation(operator, left, ast.Reference(name)) if name.lower() == "time":
            return _time_range(_MIRRORED.get(operator, operator), _moment(left, now, zone)), None
    return TimeRange(), where


def _time_range(operator: str, ns: int) -> TimeRange:
    ranges = {
        "=": TimeRange(ns, ns),
        ">": TimeRange(start=ns + 1),
        ">=": TimeRange(start=ns),
        "<": TimeRange(stop=ns - 1),
        "<=": TimeRange(stop=ns),
    }
    if operator not in ranges:
        raise InvalidSql(f"invalid time comparison operator: {operator}")
    return ranges[operator]


def _moment(expression: ast.Expression, now: int, zone: str | None) -> int:
    match expression:
        case ast.Constant(str() as text):
            found = parse_time(text, zone)
            if found is None:
                raise InvalidSql(f"'{text:.80}' is not a time: expected one such as '2026-01-31T08:00:00Z'")
            return found
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return int(number)
        case ast.Duration(ns):
            return ns
        case ast.FunctionCall("now", ()):
            return now
        case ast.Operation("+" | "-" as operator, left, right):
            first, second = _moment(left, now, zone), _moment(right, now, zone)
            return first + second if operator == "+" else first - second
    raise InvalidSql("expected a time to be compared with a time, now(), a number or a duration")


class ConditionSql:
    """Writes conditions on tags and fields as SQL of DuckDB. A tag that a row lacks is the empty text, and so is a name that
    is no column; a comparison with a field that a row lacks is not true."""

    literal = staticmethod(literal)
    number = staticmethod(number_sql)

    def __init__(self, columns: Measurement | DerivedRows | spark.SparkColumns) -> None:
        self._columns = columns

    def condition(self, expression: ast.Expression) -> str:
        """A condition. Raises InvalidSql."""
        match expression:
            case ast.Operation("AND" | "OR" as operator, left, right):
                return f"({self.condition(left)} {operator} {self.condition(right)})"
            case ast.Operation("=~" | "!~" as operator, left, ast.RegularExpression(pattern)):
                text, kind = self._operand(left)
                if kind not in ("tag", "string"):
                    return "false"
                return self.matches(text, pattern) if operator == "=~" else f"NOT {self.matches(text, pattern)}"
            case ast.Operation(operator, left, right) if operator in _COMPARED:
                return _comparison(operator, self._operand(left), self._operand(right))
            case ast.Constant(bool() as value):
                return "true" if value else "false"
        raise InvalidSql("invalid condition: expected comparisons of tags and fields, joined by AND and OR")

    def _operand(self, expression: ast.Expression) -> tuple[str, str]:
        """The SQL of an operand, and its kind: tag, string, number, boolean."""
        match expression:
            case ast.Constant(bool() as value):
                return ("true" if value else "false"), "boolean"
            case ast.Constant(str() as text):
                return self.literal(text), "string"
            case ast.Constant(int() | float() as number):
                return self.number(number), "number"
            case ast.Duration(ns):
                return self.number(ns), "number"
            case ast.Reference(name):
                return self._reference(name)
            case ast.Operation(operator, left, right) if operator in _ARITHMETIC:
                first, second = self._operand(left), self._operand(right)
                if {first[1], second[1]} != {"number"}:
                    return "NULL", "number"
                return self.arithmetic(operator, first[0], second[0]), "number"
        raise InvalidSql(
            "invalid condition: no function can be used in WHERE except now(), which is compared with a time"
        )

    def _reference(self, name: str) -> tuple[str, str]:
        kind = self._columns.fields.get(name)
        if kind is None:
            return self._columns.tag(name), "tag"
        column = self._columns.column(name)
        if kind == "boolean" and isinstance(self._columns, DerivedRows):  # InfluxDB takes a missing one for false there
            return f"coalesce({column}, false)", kind
        return column, "number" if kind in ("float", "integer") else kind

    def matches(self, text: str, pattern: str) -> str:
        """Whether the pattern occurs in the text."""
        return f"regexp_matches({text}, {self.literal(pattern)})"

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        """An operator of two numbers."""
        if operator == "^":
            return f"xor({left}, {right})"
        if operator == "/":
            return f"({left} / nullif({right}, 0))"
        return f"({left} {operator} {right})"


class SparkConditionSql(ConditionSql):
    """Conditions in the SQL of Spark."""

    literal = staticmethod(spark.literal)
    number = staticmethod(spark.number_sql)

    def matches(self, text: str, pattern: str) -> str:
        """Whether the pattern occurs in the text."""
        return f"{text} RLIKE {self.literal(pattern)}"

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        """An operator of two numbers. Spark refuses to divide by 0."""
        divisor = f"nullif({right}, 0)" if operator in ("/", "%") else right
        return f"({left} {operator} {divisor})"


def _comparison(operator: str, left: tuple[str, str], right: tuple[str, str]) -> str:
    kinds = {"string" if kind == "tag" else kind for _, kind in (left, right)}
    if len(kinds) > 1 or (operator not in ("=", "!=") and kinds != {"number"}):
        return "false"
    return f"({left[0]} {operator} {right[0]})"
