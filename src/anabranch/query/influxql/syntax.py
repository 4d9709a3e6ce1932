"""The syntax tree of InfluxQL. Times and durations are in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal as OneOf
from typing import TypeVar

_T = TypeVar("_T")
FieldType = OneOf["float", "integer", "string", "boolean"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A tag, a field or `time`. `cast` is what follows `::`."""

    name: str
    cast: str | None = None


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`*`; `cast` is `tag`, `field` or None for both."""

    cast: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, a number or a boolean."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Duration:
    """`10m`, in nanoseconds."""

    ns: int


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """`/…/`, in the syntax of RE2."""

    pattern: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call. The name is in lower case."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """Two operands, and the operator between them; AND and OR are written in capitals."""

    operator: str
    left: Expression
    right: Expression


Expression = Reference | Wildcard | Constant | Duration | RegularExpression | FunctionCall | Operation


@dataclass(frozen=True, slots=True)
class SelectedField:
    """An expression of a SELECT, with the name of its column if it is given one."""

    expression: Expression
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SourceName:
    """A measurement by its name or by a pattern, in a database. An empty retention policy is the default one."""

    name: str | RegularExpression
    database: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class NestedSelect:
    """A SELECT in brackets, whose results another reads."""

    select: Select


@dataclass(frozen=True, slots=True)
class Grouping:
    """GROUP BY: by time (`interval` and `offset`), by tags (their names, patterns, or all)."""

    interval: int | None = None
    offset: int = 0
    tags: tuple[str | RegularExpression | Wildcard, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The tags, once patterns and wildcards are written out."""
        return tuple(map(str, self.tags))


@dataclass(frozen=True, slots=True)
class Fill:
    """The fill for windows without events: `null`, `none`, `previous`, `linear` or a number."""

    kind: OneOf["null", "none", "previous", "linear", "number"] = "null"
    number: float | int = 0


@dataclass(frozen=True, slots=True)
class Paging:
    """Numbers of rows of each series, and of series. None: all."""

    limit: int | None = None
    offset: int = 0
    series_limit: int | None = None
    series_offset: int = 0

    @property
    def pages_series(self) -> bool:
        """Whether it selects some of the series."""
        return self.series_limit is not None or self.series_offset > 0

    def page(self, rows: Iterable[_T]) -> list[_T]:
        """The rows that LIMIT and OFFSET select."""
        return list(islice(rows, self.offset, None if self.limit is None else self.offset + self.limit))


@dataclass(frozen=True, slots=True)
class IntoTarget:
    """INTO: a measurement in a database; None for its name is `:MEASUREMENT`, the name of that which is read."""

    name: str | None
    database: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """SELECT … FROM … `ordered`: with ORDER BY."""

    fields: tuple[SelectedField, ...]
    sources: tuple[SourceName | NestedSelect, ...]
    where: Expression | None = None
    grouping: Grouping = field(default_factory=Grouping)
    fill: Fill = field(default_factory=Fill)
    descending: bool = False
    ordered: bool = False
    paging: Paging = field(default_factory=Paging)
    zone: str | None = None
    into: IntoTarget | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """A SHOW statement. `what` is its object: DATABASES, MEASUREMENTS, TAG KEYS, TAG VALUES, FIELD KEYS, SERIES,
    RETENTION POLICIES and others. `keys` is the operator and operand of WITH KEY and WITH MEASUREMENT."""

    what: str
    database: str | None = None
    sources: tuple[SourceName, ...] = ()
    keys: tuple[str, tuple[str | RegularExpression, ...]] | None = None
    where: Expression | None = None
    paging: Paging = field(default_factory=Paging)


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """CREATE DATABASE, DROP DATABASE, DROP MEASUREMENT."""

    verb: str
    name: str


@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """CREATE CONTINUOUS QUERY … ON … BEGIN … END. `every_ns` and `for_ns` are those of RESAMPLE EVERY and FOR."""

    name: str
    database: str
    select: Select
    every_ns: int | None = None
    for_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DropContinuousQuery:
    """DROP CONTINUOUS QUERY … ON …"""

    name: str
    database: str


def measurement_names(select: Select) -> Iterator[SourceName]:
    """The measurements that a statement and its subqueries name."""
    for source in select.sources:
        if isinstance(source, NestedSelect):
            yield from measurement_names(source.select)
        else:
            yield source


Parsed = Select | Show | DatabaseChange | ContinuousQuery | DropContinuousQuery


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of, from left to right."""
    yield expression
    if isinstance(expression, FunctionCall):
        for argument in expression.arguments:
            yield from walk(argument)
    elif isinstance(expression, Operation):
        yield from walk(expression.left)
        yield from walk(expression.right)
