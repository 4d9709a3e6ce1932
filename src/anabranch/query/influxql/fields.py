"""The columns of a SELECT: wildcards written out, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import CONSTANT_TYPES, Columns, type_of
from anabranch.query.influxql.functions import AGGREGATES, OF_NUMBERS
from anabranch.query.influxql.patterns import matching


def expanded(select: ast.Select, sources: Sequence[Columns]) -> ast.Select:
    """The statement with the names that its wildcards and patterns stand for, over all its sources."""
    tags = sorted({tag for each in sources for tag in each.tags})
    fields: dict[str, ast.FieldType] = {}
    for each in sources:
        for name, kind in each.fields.items():
            fields.setdefault(name, kind)
    groups = _grouping_tags(select, tags)
    plain = [tag for tag in tags if tag not in groups]
    found = [one for field in select.fields for one in _written_out(field, plain, fields)]
    grouping = replace(select.grouping, tags=tuple(groups))
    return replace(select, fields=tuple(found), grouping=grouping)


def _grouping_tags(select: ast.Select, tags: Sequence[str]) -> list[str]:
    found: set[str] = set()
    for each in select.grouping.tags:
        match each:
            case str():
                found.add(each)
            case ast.RegularExpression(pattern):
                found.update(matching(pattern, tags))
            case ast.Wildcard():
                found.update(tags)
    return sorted(found)


def _written_out(
    field: ast.SelectedField, tags: Sequence[str], fields: Mapping[str, ast.FieldType]
) -> Iterable[ast.SelectedField]:
    match field.expression:
        case ast.Wildcard(cast):
            names = [*(tags if cast in (None, "tag") else ()), *(fields if cast in (None, "field") else ())]
            return [ast.SelectedField(ast.Reference(name)) for name in sorted(names)]
        case ast.RegularExpression(pattern):
            return [ast.SelectedField(ast.Reference(name)) for name in matching(pattern, sorted([*tags, *fields]))]
        case ast.FunctionCall(name, arguments) as call:
            place = next(
                (n for n, each in enumerate(arguments) if isinstance(each, ast.Wildcard | ast.RegularExpression)), None
            )
            if place is not None:
                return _calls(field, call, place, fields)
            if name not in AGGREGATES and arguments and isinstance(arguments[0], ast.FunctionCall):
                inner = _written_out(ast.SelectedField(arguments[0]), tags, fields)
                if isinstance(inner, list) and inner and inner[0].alias is not None:
                    return [
                        ast.SelectedField(
                            ast.FunctionCall(name, (one.expression, *arguments[1:])),
                            f"{field.alias or name}_{str(one.alias).partition('_')[2]}",
                        )
                        for one in inner
                    ]
    return (field,)


def _calls(
    field: ast.SelectedField, call: ast.FunctionCall, place: int, fields: Mapping[str, ast.FieldType]
) -> list[ast.SelectedField]:
    types = AGGREGATES[call.name].types if call.name in AGGREGATES else ("float", "integer")
    if call.name == "distinct":
        types = ("float", "integer", "string", "boolean")
    names = sorted(name for name, kind in fields.items() if kind in types)
    wildcard = call.arguments[place]
    if isinstance(wildcard, ast.RegularExpression):
        names = matching(wildcard.pattern, names)
    found = []
    for name in names:
        arguments = (*call.arguments[:place], ast.Reference(name), *call.arguments[place + 1 :])
        found.append(ast.SelectedField(ast.FunctionCall(call.name, arguments), f"{field.alias or call.name}_{name}"))
    return found


def column_names(fields: Sequence[ast.SelectedField]) -> list[str]:
    """The names of the columns, made distinct by numbers: `mean`, `mean_1`."""
    found: dict[int, str] = {n: field.alias for n, field in enumerate(fields) if field.alias is not None}
    counts = dict.fromkeys(found.values(), 1)
    for number, field in enumerate(fields):
        if number in found:
            continue
        name = _name(field.expression)
        if (count := counts.get(name)) is not None:
            base = name
            while (name := f"{base}_{count}") in counts:
                count += 1
            counts[base] = count + 1
        counts[name] = counts.get(name, 0) + 1
        found[number] = name
    return [found[number] for number in range(len(fields))]


def _name(expression: ast.Expression) -> str:
    match expression:
        case ast.Reference(name) | ast.FunctionCall(name):
            return name
        case ast.Operation():
            return "_".join(_names(expression))
    return ""


def _names(expression: ast.Expression) -> Iterable[str]:
    match expression:
        case ast.Reference(name) | ast.FunctionCall(name):
            yield name
        case ast.Operation(_, left, right):
            yield from _names(left)
            yield from _names(right)


def check_arithmetic(expression: ast.Expression, sources: Sequence[Columns]) -> None:
    """Raise InvalidSql for an operator whose operands have no fitting types."""
    if not isinstance(expression, ast.Operation):
        return
    kinds = []
    for operand in (expression.left, expression.right):
        check_arithmetic(operand, sources)
        if (kind := _kind(operand, sources)) is not None:
            kinds.append(kind)
    bits = expression.operator in ("&", "|", "^")
    fitting = {"boolean", "integer"} if bits else {"float", "integer"}
    if not set(kinds) <= fitting or (bits and len(set(kinds)) > 1):
        raise InvalidSql(f"type error: operator {expression.operator}: incompatible types: {' and '.join(kinds)}")


def check_arguments(expression: ast.Expression, columns: Columns) -> None:
    """Raise InvalidSql for a function of numbers over texts or booleans. Tags have no values for a function."""
    for call in ast.walk(expression):
        if isinstance(call, ast.FunctionCall) and call.name in OF_NUMBERS and call.arguments:
            argument = call.arguments[0]
            if isinstance(argument, ast.Reference) and argument.name not in columns.fields:
                continue
            kind = type_of(argument, columns)
            if kind in ("string", "boolean"):
                raise InvalidSql(f"unsupported {call.name} iterator type: its argument is a {kind}")


def _kind(operand: ast.Expression, sources: Sequence[Columns]) -> ast.FieldType | None:
    match operand:
        case ast.Constant(value):
            return CONSTANT_TYPES[type(value)]
        case ast.Reference(name, cast):
            if cast in ("float", "integer", "string", "boolean"):
                return cast  # type: ignore[return-value]
            return next((each.fields[name] for each in sources if name in each.fields), None)
    return None
