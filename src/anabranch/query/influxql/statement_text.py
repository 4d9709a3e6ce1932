"""Writes statements as text, as InfluxDB shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.expression_parser import PRECEDENCE
from anabranch.query.influxql.times import UNITS
from anabranch.query.influxql.tokens import KEYWORDS

POLICY: Final = "autogen"
"""The only retention policy."""
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHOWN_UNITS: Final = ("w", "d", "h", "m", "s", "ms", "u", "ns")


def continuous_text(query: ast.ContinuousQuery, default: str) -> str:
    """CREATE CONTINUOUS QUERY in one line. `default` is the database of measurements without one; all are written with
    theirs."""
    parts = ["CREATE CONTINUOUS QUERY", name_text(query.name), "ON", name_text(query.database)]
    if query.every_ns is not None or query.for_ns is not None:
        parts.append("RESAMPLE")
    parts += ["EVERY", duration_text(query.every_ns)] if query.every_ns is not None else []
    parts += ["FOR", duration_text(query.for_ns)] if query.for_ns is not None else []
    return " ".join([*parts, "BEGIN", select_text(query.select, default), "END"])


def select_text(select: ast.Select, database: str) -> str:
    """SELECT … in one line. `database` is that of measurements without one."""
    fields = []
    for field in select.fields:
        alias = "" if field.alias is None else f" AS {name_text(field.alias)}"
        fields.append(f"{_expression(field.expression)}{alias}")
    parts = [f"SELECT {', '.join(fields)}"]
    if select.into is not None:
        parts.append(f"INTO {_target(select.into, database)}")
    parts.append(f"FROM {', '.join(_source(each, database) for each in select.sources)}")
    if select.where is not None:
        parts.append(f"WHERE {_expression(select.where)}")
    parts += _ending(select)
    return " ".join(parts)


def _ending(select: ast.Select) -> Iterator[str]:
    groups, paging, fill = list(_groups(select.grouping)), select.paging, select.fill
    if groups:
        yield f"GROUP BY {', '.join(groups)}"
    if fill.kind == "number":
        yield f"fill({_number(fill.number)})"
    elif fill.kind != "null":
        yield f"fill({fill.kind})"
    if select.ordered:
        yield f"ORDER BY time {'DESC' if select.descending else 'ASC'}"
    numbers = {
        "LIMIT": paging.limit,
        "OFFSET": paging.offset,
        "SLIMIT": paging.series_limit,
        "SOFFSET": paging.series_offset,
    }
    yield from (f"{word} {number}" for word, number in numbers.items() if number)
    if select.zone is not None:
        yield f"TZ({_string(select.zone)})"


def _groups(grouping: ast.Grouping) -> Iterator[str]:
    if grouping.interval is not None:
        offset = f", {duration_text(grouping.offset)}" if grouping.offset else ""
        yield f"time({duration_text(grouping.interval)}{offset})"
    for tag in grouping.tags:
        yield name_text(tag) if isinstance(tag, str) else _expression(tag)


def _source(source: ast.SourceName | ast.NestedSelect, database: str) -> str:
    if isinstance(source, ast.NestedSelect):
        return f"({select_text(source.select, database)})"
    name = _expression(source.name) if isinstance(source.name, ast.RegularExpression) else name_text(source.name)
    return f"{name_text(source.database or database)}.{POLICY}.{name}"


def _target(target: ast.IntoTarget, database: str) -> str:
    name = ":MEASUREMENT" if target.name is None else name_text(target.name)
    return f"{name_text(target.database or database)}.{name_text(target.policy or POLICY)}.{name}"


def _expression(expression: ast.Expression) -> str:
    match expression:
        case ast.Reference(name, cast):
            return name_text(name) + (f"::{cast}" if cast else "")
        case ast.Wildcard(cast):
            return f"*::{cast}" if cast else "*"
        case ast.Constant(value):
            return _constant(value)
        case ast.Duration(ns):
            return duration_text(ns)
        case ast.RegularExpression(pattern):
            return f"/{pattern.replace('/', chr(92) + '/')}/"
        case ast.FunctionCall(name, arguments):
            return f"{name}({', '.join(map(_expression, arguments))})"
        case ast.Operation(operator, left, right):
            least = PRECEDENCE[operator]
            return f"{_operand(left, least)} {operator} {_operand(right, least + 1)}"


def _constant(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _operand(expression: ast.Expression, least: int) -> str:
    text = _expression(expression)
    return f"({text})" if isinstance(expression, ast.Operation) and PRECEDENCE[expression.operator] < least else text


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def name_text(name: str) -> str:
    """A name, in quotes if it needs them."""
    if _PLAIN.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') + '"'


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("\n", "\\n").replace("'", "\\'") + "'"


def duration_text(ns: int) -> str:
    """`90s`, in the largest unit that it is a whole number of."""
    if ns == 0:
        return "0s"
    unit = next(each for each in _SHOWN_UNITS if ns % UNITS[each] == 0)
    return f"{ns // UNITS[unit]}{unit}"
