"""Looks up what a SELECT and its subqueries name: measurements, columns, and their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import common_types, type_of
from anabranch.query.influxql.fields import check_arguments, check_arithmetic, column_names, expanded
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.statements import Database, sources_of


@dataclass(frozen=True, slots=True)
class PreparedSelect:
    """A statement whose wildcards are replaced by names, with the measurements and subqueries that it reads. `names`
    are those of the columns of its result. As a source of another statement its columns are `fields`, and the tags that
    it groups by are `tags`; fields that have no values are left out."""

    select: ast.Select
    sources: tuple[Measurement | PreparedSelect, ...]
    names: tuple[str, ...]
    tags: tuple[str, ...]
    fields: Mapping[str, ast.FieldType]

    @property
    def nested(self) -> bool:
        """Whether it reads the results of subqueries."""
        return any(isinstance(each, PreparedSelect) for each in self.sources)


@dataclass(frozen=True, slots=True)
class _AllColumns:
    """The columns of several sources."""

    tags: tuple[str, ...]
    fields: Mapping[str, ast.FieldType]


def prepared(statement: ast.Select, database: Database, default: str) -> PreparedSelect:
    """Look up what the statement names. A measurement that there is not is left out. Raises InvalidSql."""
    plain = sources_of(database, default, [each for each in statement.sources if isinstance(each, ast.SourceName)])
    inner = [
        prepared(each.select, database, default) for each in statement.sources if isinstance(each, ast.NestedSelect)
    ]
    _check_fields(statement)
    written = _without_time(expanded(statement, [*plain, *inner]))
    for field in written.fields:
        check_arithmetic(field.expression, [*plain, *inner])
    sources: Sequence[Measurement | PreparedSelect] = plain
    if inner:  # events of a measurement beside them are rows like theirs
        sources = [*inner, *(_rows_of(each, written) for each in plain)]
    columns = shown_fields(written.fields)
    tags = sorted({tag for each in sources for tag in each.tags})
    known = _AllColumns(tuple(tags), common_types(each.fields for each in sources))
    for field in written.fields:
        check_arguments(field.expression, known)
    names = column_names(columns)
    types = [type_of(field.expression, known) for field in columns]
    return PreparedSelect(
        written,
        tuple(sources),
        tuple(names),
        written.grouping.names,
        {name: kind for name, kind in zip(names, types, strict=True) if kind is not None},
    )


def shown_fields(fields: Sequence[ast.SelectedField]) -> list[ast.SelectedField]:
    """The fields, and those that `top` and `bottom` show beside."""
    found: list[ast.SelectedField] = []
    for field in fields:
        found.append(field)
        if isinstance(field.expression, ast.FunctionCall) and field.expression.name in ("top", "bottom"):
            found += [ast.SelectedField(each) for each in field.expression.arguments[1:-1]]
    return found


def _check_fields(statement: ast.Select) -> None:
    """Raises InvalidSql if no field is selected, a column has no variable, or GROUP BY names `time` without an interval."""
    if all(isinstance(each.expression, ast.Reference) and _is_time(each.expression.name) for each in statement.fields):
        raise InvalidSql("at least 1 non-time field must be queried")
    for field in statement.fields:
        if all(isinstance(part, ast.Constant | ast.Duration | ast.Operation) for part in ast.walk(field.expression)):
            raise InvalidSql("field must contain at least one variable")
    if any(isinstance(tag, str) and _is_time(tag) for tag in statement.grouping.tags):
        raise InvalidSql("time() is a function and expects at least one argument")


def _is_time(name: str) -> bool:
    return name.lower() == "time"


def _without_time(statement: ast.Select) -> ast.Select:
    """The first column is the time, so it need not be selected."""
    fields = tuple(
        field
        for field in statement.fields
        if not (isinstance(field.expression, ast.Reference) and _is_time(field.expression.name))
    )
    return replace(statement, fields=fields)


def _rows_of(measurement: Measurement, outer: ast.Select) -> PreparedSelect:
    """The columns of a measurement that a statement needs, as a subquery."""
    parts: list[ast.Expression] = [part for field in outer.fields for part in ast.walk(field.expression)]
    parts += ast.walk(outer.where) if outer.where is not None else ()
    wanted = {part.name: None for part in parts if isinstance(part, ast.Reference)}
    names = [name for name in wanted if name in measurement.fields or name in measurement.tags]
    fields = tuple(ast.SelectedField(ast.Reference(name)) for name in names)
    types = {name: measurement.fields.get(name, "string") for name in names}
    return PreparedSelect(ast.Select(fields, ()), (measurement,), tuple(names), (), types)
