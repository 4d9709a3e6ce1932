"""A pipeline's statements as values, and the parsing of their options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeVar

from anabranch.core.shed_rule import ShedRule
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.model.amounts import UNITS_US
from anabranch.model.names import StreamName
from anabranch.spark.pipelines.functions.declared import DeclaredFunction
from anabranch.spark.pipelines.side_outputs import SideOutput
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["OPTIONS", "VERSIONS_VIEW", "Statement", "StatementOptions", "parse_interval_us", "to_options"]

OPTIONS: Final = frozenset(
    {"key", "time", "watermark", "idle", "trigger", "start", "mode", "segments", "late", "shed", "shed_priority"}
    | {"start_query", "handler"}
)

VERSIONS_VIEW: Final = "versions"  # a part of the names of views of `VERSIONS scope.name`
_T = TypeVar("_T")
_UNIT_US = {
    "microsecond": 1,
    "millisecond": UNITS_US["ms"],
    "second": UNITS_US["s"],
    "minute": UNITS_US["m"],
    "hour": UNITS_US["h"],
    "day": UNITS_US["d"],
    "week": UNITS_US["w"],
}
_INTERVAL_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)")
_MODES = ("append", "complete")


@dataclass(frozen=True, slots=True)
class StatementOptions:
    """The options in `WITH (…)`. None: not given, so the default applies.

    `key` and `time` name columns of the result. `watermark_us` is the watermark's delay for every source of the
    statement; a source without new events for `idle_us` no longer holds it back; `trigger_us` is the minimum time between batches (0: as soon as there is something to do). `start` is where
    a first run begins in the sources (`head`, `tail`, or a time). `mode` is Spark's output mode. `segments` is the
    number of segments of a result stream that is created. `late`: whether events that come too late for their window
    are kept in the stream of late events. `shed`: when a part of the events is left out and results are estimates;
    `shed_priority` is SQL for the chance with which an event is kept at least. `start_query` is the deployed query that is
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

    `sources` (read as streams) and `tables` (two-part names, read as they are now) map a view's name to a stream's.
    If a name in `tables` is not a stream, `without_tables` restores it in the query. `has_versions` says which of these are
    read as `VERSIONS scope.name`: each row with the times from and until which it is its key's newest. `line` and `query_line`, where the
    statement and its query begin, count from 1. `intervals_us` is the sum of the interval literals in the query.
    `arguments` are the values of the parameters that it names. `windowed` are the parts of a query whose windows Spark
    does not compute. `reads` is how often it reads streams: a join of a stream with itself reads one source twice.
    `sides` are its side outputs, `feedback` those of its outputs that lead back to it, and `late_into` the stream of its late
    events if it names one. `functions` are those of the file that it uses; `handler`, one of these, makes its result of the
    query's rows.
    """

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


def parse_interval_us(text: str) -> int:
    """The length of '10 seconds', '1 minute 30 seconds', 'interval 2 hours' in µs, as in Spark.

    Months and years are refused because they have no fixed length; Spark refuses them for windows and watermarks too.
    Raises InvalidSql.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    total, position = Decimal(0), 0
    while position < len(rest):
        part = _INTERVAL_PART.match(rest, position)
        unit = _UNIT_US.get(part[2]) or _UNIT_US.get(part[2].removesuffix("s")) if part else None
        if part is None or unit is None:
            raise InvalidSql(
                f"'{text}' is not an interval: expected, for example, '10 seconds' or '1 minute 30 seconds'"
            )
        if "." in part[1] and unit != _UNIT_US["second"]:
            raise InvalidSql(f"'{text}' is not an interval: only seconds may have a fraction")
        total += Decimal(part[1]) * unit
        position = part.end()
    if position == 0 or total != int(total):
        raise InvalidSql(f"'{text}' is not an interval in whole microseconds: expected, for example, '10 seconds'")
    return int(total)


def _choice(*allowed: str) -> dict[str, str]:
    return {word: word for word in allowed}


_FLAGS = {"true": True, "false": False}


def to_options(given: Mapping[str, tuple[str, int]]) -> StatementOptions:
    """The options from their texts and the lines of these. Raises InvalidSql."""

    def one_of(name: str, allowed: Mapping[str, _T], default: _T) -> _T:
        if name not in given:
            return default
        text, line = given[name]
        if text.lower() not in allowed:
            raise InvalidSql(f"{name} = '{text}': expected {' or '.join(allowed)}", line=line)
        return allowed[text.lower()]

    def interval(name: str) -> int | None:
        if name not in given:
            return None
        text, line = given[name]
        try:
            value = parse_interval_us(text)
        except InvalidSql as exc:
            raise InvalidSql(f"{name}: {exc}", line=line) from exc
        if value < 0 or value % 1_000:
            raise InvalidSql(f"{name} = '{text}': expected whole milliseconds, not less than 0", line=line)
        return value

    def text_of(name: str) -> str | None:
        return given[name][0] if name in given else None

    shed = None
    if (rule := text_of("shed")) is not None:
        try:
            shed = ShedRule.parse(rule)
        except InvalidArgument as exc:
            raise InvalidSql(f"shed = {exc}", line=given["shed"][1]) from exc
    if shed is None and "shed_priority" in given:
        raise InvalidSql("shed_priority goes with shed = 'lag > 10 s'", line=given["shed_priority"][1])
    segments = text_of("segments")
    if segments is not None and not (segments.isdecimal() and int(segments) > 0):
        raise InvalidSql(f"segments = '{segments}': expected a number from 1", line=given["segments"][1])
    return StatementOptions(
        key=text_of("key"),
        time=text_of("time"),
        watermark_us=interval("watermark"),
        idle_us=interval("idle"),
        trigger_us=interval("trigger"),
        start=text_of("start"),
        mode=one_of("mode", _choice(*_MODES), "append"),
        segments=None if segments is None else int(segments),
        late=one_of("late", _FLAGS, True),
        shed=shed,
        shed_priority=text_of("shed_priority"),
        start_query=text_of("start_query"),
        handler=text_of("handler"),
    )
