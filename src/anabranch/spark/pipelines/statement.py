"""A pipeline's statements as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.core.shed_rule import ShedRule
from anabranch.model.columns import APPENDED
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.declared_functions.declared import DeclaredFunction
from anabranch.spark.pipelines.side_outputs import SideOutput
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["VERSIONS_VIEW", "Statement", "StatementOptions"]

VERSIONS_VIEW: Final = "versions"  # a part of the names of views of `VERSIONS scope.name`


@dataclass(frozen=True, slots=True)
class StatementOptions:
    """The options in `WITH (…)`. None: not given, so the default applies.

    `key` and `time` name columns of the result. `watermark_us` is the watermark's delay for every source of the
    statement; a source without new events for `idle_us` no longer holds it back; `trigger_us` is the minimum time between batches (0: as soon as there is something to do). `start` is where
    a first run begins in the sources (`head`, `tail`, or a time). `mode` is Spark's output mode. `segments` is the
    number of segments of a result stream that is created. `late`: whether events that come too late for their window
    are kept in the stream of late events. `shed`: when a part of the events is left out and results are estimates;
    `shed_priority` is SQL for the lower bound of an event's keep rate. `start_query` is the deployed query that is
    started when drift is found.
    """

    key: str | None = None
    time: str | None = None
    watermark_us: int | None = None
    idle_us: int | None = None
    trigger_us: int | None = None
    start: str | None = None
    mode: str = "append"
    segments: int | None = None
    late: bool = True
    shed: ShedRule | None = None
    shed_priority: str | None = None
    start_query: str | None = None
    handler: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One `CREATE STREAM`. `query` is Spark SQL over the views named in `sources` and `tables`.

    `sources` (read as streams) and `tables` (two-part names, read as they are now) map a view's name to a stream's. If
    a name in `tables` is not a stream, `without_tables` restores it in the query. `has_versions` says which of these
    are read as `VERSIONS scope.name`: each row with the times from and until which it is its key's newest. `line` and
    `query_line`, where the statement and its query begin, count from 1. `intervals_us` is the sum of the interval
    literals in the query. `arguments` are the values of the parameters that it names. `windowed` are the parts of a
    query whose windows Spark does not compute. `reads` is how often it reads streams: a join of a stream with itself
    reads one source twice. `sides` are its side outputs, `feedback` its outputs that lead back to it, and `late_into`
    the stream of its late events if the statement names one. `functions` are those of the file that it uses; `handler`,
    one of these, makes its result of the query's rows."""

    target: StreamName
    options: StatementOptions
    query: str
    sources: Mapping[str, StreamName]
    tables: Mapping[str, StreamName]
    windows: tuple[StatementWindow, ...]
    line: int
    query_line: int
    intervals_us: int = 0
    arguments: Mapping[str, Any] = field(default_factory=dict)
    windowed: WindowedQuery | None = None
    reads: int = 1
    sides: tuple[SideOutput, ...] = ()
    late_into: StreamName | None = None
    feedback: tuple[SideOutput, ...] = ()
    functions: tuple[DeclaredFunction, ...] = ()
    handler: DeclaredFunction | None = None

    @property
    def outputs(self) -> tuple[SideOutput, ...]:
        """Its side outputs and those that lead back, in the order in which they take rows."""
        return (*self.sides, *self.feedback)

    def has_versions(self, view: str) -> bool:
        """True if this view of `tables` is read as VERSIONS."""
        return f"_{VERSIONS_VIEW}_" in view and view in self.tables

    @property
    def by_append_time(self) -> bool:
        """True if its windows are of the times at which events were appended. Then its watermark is of these times too."""
        return any(window.column == APPENDED for window in self.windows)

    @property
    def joins(self) -> bool:
        """True if it may join streams, perhaps one with itself."""
        return max(self.reads, len(self.sources)) > 1

    @property
    def horizon_us(self) -> int:
        """How far the watermark must be after the newest event for everything that is open to close. For one window
        that is exactly its size: then no window is closed that begins after the newest event."""
        fractions = any(each % 1_000 for window in self.windows for each in (window.size_us, window.start_us))
        # Spark's watermark is in whole ms.
        rounding = 1_000 if self.joins or fractions else 0
        return sum(window.size_us for window in self.windows) + (self.intervals_us if self.joins else 0) + rounding

    @property
    def late_target(self) -> StreamName:
        """The stream for late events."""
        return self.late_into or StreamName(self.target.scope, f"{self.target.name}_late")

    @property
    def results(self) -> tuple[StreamName, ...]:
        """The streams of its results: its own, then its side outputs."""
        return (self.target, *(side.target for side in self.sides))

    @property
    def targets(self) -> tuple[StreamName, ...]:
        """Every stream that the statement may write, other than by feedback."""
        return (*self.results, self.late_target) if self.options.late else self.results

    def without_tables(self, views: Sequence[str]) -> str:
        """The query with these views of `tables` replaced by their original names, for Spark to look up."""
        query = self.query
        for view in views:
            name = self.tables[view]
            query = re.sub(rf"\b{view}\b", f"`{name.scope}`.`{name.name}`", query)
        return query
