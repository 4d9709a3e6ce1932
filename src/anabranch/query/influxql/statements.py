"""What the statements of a query read and return: the streams that a caller may read, as measurements, and rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.series import Row
from anabranch.query.influxql.statement_text import POLICY


class Database(Protocol):
    """The streams that a caller may read."""

    def databases(self) -> Sequence[str]:
        """Their scopes, in the order of their names."""
        ...

    def measurements(self, database: str) -> Sequence[Measurement]:
        """Those of a scope, in the order of their names."""
        ...

    def measurement(self, database: str, name: str) -> Measurement | None:
        """One of them, or None."""
        ...

    def run(self, sql: str, measurement: Measurement) -> Iterable[pa.RecordBatch]:
        """The result of a query over a stream. Raises InvalidSql, QueryLimitExceeded."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A series of a result: its measurement, the tags that it is grouped by, the columns, and the rows, to be taken once.
    `timed`: the first column is a time in nanoseconds."""

    name: str
    tags: dict[str, str] | None
    columns: Sequence[str]
    values: Iterable[Row]
    timed: bool = True


def sources_of(database: Database, default: str, sources: Sequence[ast.SourceName]) -> list[Measurement]:
    """The measurements that a statement names, each once, in the order of their names. A measurement that
    does not exist is left out. Raises InvalidSql for a retention policy that does not exist."""
    found: dict[str, Measurement] = {}
    for source in sources:
        scope = source.database or default
        if source.policy and source.policy != POLICY:
            raise InvalidSql(f"retention policy not found: {source.policy}")
        if isinstance(source.name, ast.RegularExpression):
            known = {each.name: each for each in database.measurements(scope)}
            named = [known[name] for name in matching(source.name.pattern, list(known))]
        else:
            one = database.measurement(scope, source.name)
            named = [] if one is None else [one]
        found.update((str(each.stream), each) for each in named)
    return sorted(found.values(), key=lambda each: (each.name, each.stream))
