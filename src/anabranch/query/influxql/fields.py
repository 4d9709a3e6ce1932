"""The columns of a SELECT: wildcards written out, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.errors import InvalidSql
from anabranch.query.influxql.functions import AGGREGATES, OF_NUMBERS
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.relation import CONSTANT_TYPES, Columns, FieldType
from anabranch.query.influxql.result_types import type_of
from anabranch.query.influxql.syntax import (
    Constant,
    Expression,
    FunctionCall,
    Operation,
    Reference,
    RegularExpression,
    Select,
    SelectedField,
    Wildcard,
    walk,
)


def expanded(select: Select, sources: Sequence[Columns]) -> Select:
    """The statement with the names that its wildcards and patterns stand for, over all its sources."""
    tags = sorted({tag for each in sources for tag in each.tags})
    fields: dict[str, FieldType] = {}
    for each in sources:
        for name, kind in each.fields.items():
            fields.setdefault(name, kind)
    groups = list(_grouping_tags(select, tags))
    plain = [tag for tag in tags if tag not in groups]
    found = [one for field in select.fields for one in _written_out(field, plain, fields)]
    grouping = replace(select.grouping, tags=tuple(groups))
    return replace(select, fields=tuple(found), grouping=grouping)


def _grouping_tags(select: Select, tags: Sequence[str]) -> dict[str, None]:
    found: dict[str, None] = {}
    for each in select.grouping.tags:
        match each:
            case str():
                found[each] = None
            case RegularExpression(pattern):
                found.update(dict.fromkeys(matching(pattern, tags)))
            case Wildcard():
                found.update(dict.fromkeys(tags))
    return dict.fromkeys(sorted(found))


def _written_out(field: SelectedField, tags: Sequence[str], fields: Mapping[str, FieldType]) -> Iterable[SelectedField]:
    match field.expression:
        case Wildcard(cast):
            names = [*(tags if cast in (None, "tag") else ()), *(fields if cast in (None, "field") else ())]
            return [SelectedField(Reference(name)) for name in sorted(names)]
        case RegularExpression(pattern):
            return [SelectedField(Reference(name)) for name in matching(pattern, sorted([*tags, *fields]))]
        case FunctionCall(name, arguments) as call:
            place = next(
                (n for n, each in enumerate(arguments) if isinstance(each, Wildcard | RegularExpression)), None
            )
            if place is not None:
                return _calls(field, call, place, fields)
            if name not in AGGREGATES and arguments and isinstance(arguments[0], FunctionCall):
                inner = _written_out(SelectedField(arguments[0]), tags, fields)
                if isinstance(inner, list) and inner and inner[0].alias is not None:
                    return [
                        SelectedField(
                            FunctionCall(name, (one.expression, *arguments[1:])),
                            f"{field.alias or name}_{str(one.alias).partition('_')[2]}",
                        )
                        for one in inner
                    ]
    return (field,)


def _calls(
    field: SelectedField, call: FunctionCall, place: int, fields: Mapping[str, FieldType]
) -> list[SelectedField]:
    types = AGGREGATES[call.name].types if call.name in AGGREGATES else ("float", "integer")
    if call.name == "distinct":
        types = ("float", "integer", "string", "boolean")
    names = sorted(name for name, kind in fields.items() if kind in types)
    wildcard = call.arguments[place]
    if isinstance(wildcard, RegularExpression):
        names = matching(wildcard.pattern, names)
    found = []
    for name in names:
        arguments = (*call.arguments[:place], Reference(name), *call.arguments[place + 1 :])
        found.append(SelectedField(FunctionCall(call.name, arguments), f"{field.alias or call.name}_{name}"))
    return found


def column_names(fields: Sequence[SelectedField]) -> list[str]:
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


def _name(expression: Expression) -> str:
    match expression:
        case Reference(name) | FunctionCall(name):
            return name
        case Operation():
            return "_".join(_names(expression))
    return ""


def _names(expression: Expression) -> Iterable[str]:
    match expression:
        case Reference(name) | FunctionCall(name):
            yield name
        case Operation(_, left, right):
            yield from _names(left)
            yield from _names(right)


def check_arithmetic(expression: Expression, sources: Sequence[Columns]) -> None:
    """Raise InvalidSql for an operator whose operands have no fitting types."""
    if not isinstance(expression, Operation):
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


def check_arguments(expression: Expression, columns: Columns) -> None:
    """Raise InvalidSql for a function of numbers over texts or booleans. Tags have no values for a function."""
    for call in walk(expression):
        if isinstance(call, FunctionCall) and call.name in OF_NUMBERS and call.arguments:
            argument = call.arguments[0]
            if isinstance(argument, Reference) and argument.name not in columns.fields:
                continue
            kind = type_of(argument, columns)
            if kind in ("string", "boolean"):
                raise InvalidSql(f"unsupported {call.name} iterator type: its argument is a {kind}")


def _kind(operand: Expression, sources: Sequence[Columns]) -> FieldType | None:
    match operand:
        case Constant(value):
            return CONSTANT_TYPES[type(value)]
        case Reference(name, cast):
            if cast in ("float", "integer", "string", "boolean"):
                return cast  # type: ignore[return-value]
            return next((each.fields[name] for each in sources if name in each.fields), None)
    return None
