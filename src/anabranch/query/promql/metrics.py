"""How streams are seen as metrics, and the SQL that selects their samples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidSql
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.promql import syntax as ast
from anabranch.query.promql.vectors import NAME
from anabranch.query.sql_text import literal, quoted

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]")
_FIRST_MS: Final = -62_135_596_800_000  # the years 1 to 9999
_LAST_MS: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Metric:
    """A field of a stream as a metric. `name` is the metric's name; if the stream has a column `__name__`, it is a
    suffix to the name in that column. `labels` has the column of each label."""

    measurement: Measurement
    field: str
    name: str
    labels: Mapping[str, str]

    @property
    def named_by_column(self) -> bool:
        """Whether a column holds the names."""
        return NAME in self.labels

    def samples_sql(self, matchers: Sequence[ast.LabelMatcher], first: int, last: int, samples_max: int) -> str | None:
        """SQL for one row for each series: its labels, then its times (µs) and values as lists in the order of time,
        from `first` to `last` (ms, inclusive); at most `samples_max` samples. None if no series can match."""
        where = self._where(matchers, first, last)
        if where is None:
            return None
        columns = self._columns()
        inner = ", ".join(
            [
                *columns,
                f"{self.measurement.row_time} AS t",
                f"{quoted(self.field)}::DOUBLE AS v",
                "_segment AS s",
                "_offset AS o",
            ]
        )
        names = ", ".join(f"l{number}" for number in range(len(columns)))
        lists = "list(t ORDER BY t, s, o) AS ts, list(v ORDER BY t, s, o) AS vs"
        return (
            f"SELECT {names + ', ' if names else ''}{lists} FROM (SELECT {inner} FROM {self.measurement.table} WHERE {where} "
            f"LIMIT {samples_max}) {f'GROUP BY {names}' if names else 'HAVING count(*) > 0'}"
        )

    def labels_sql(self, matchers: Sequence[ast.LabelMatcher], first: int, last: int) -> str | None:
        """Like `samples_sql`, for only the labels of the series."""
        where = self._where(matchers, first, last)
        columns = self._columns() or ["1 AS none"]
        return (
            where and f"SELECT DISTINCT {', '.join(columns)} FROM {self.measurement.table} WHERE {where} ORDER BY ALL"
        )

    def _columns(self) -> list[str]:
        return [f"{self._label(label)} AS l{number}" for number, label in enumerate(self.labels)]

    def _label(self, label: str) -> str:
        column = f"coalesce({quoted(self.labels[label])}, '')"
        return f"{column} || {literal(self.name)}" if label == NAME and self.name else column

    def _where(self, matchers: Sequence[ast.LabelMatcher], first: int, last: int) -> str | None:
        time = quoted(self.measurement.time)
        conditions = [f"{quoted(self.field)} IS NOT NULL"]
        if first > _FIRST_MS:
            conditions.append(f"{time} >= make_timestamptz({min(first, _LAST_MS) * 1000})")
        if last < _LAST_MS:
            conditions.append(f"{time} < make_timestamptz({(max(last, _FIRST_MS) + 1) * 1000})")
        if self.named_by_column:
            conditions.append(f"coalesce({quoted(self.labels[NAME])}, '') <> ''")
        for matcher in matchers:
            if matcher.label in self.labels:
                conditions.append(_condition(self._label(matcher.label), matcher))
            elif not matches(matcher, self.name if matcher.label == NAME else ""):
                return None
        return " AND ".join(conditions)


def metrics_of(measurements: Sequence[Measurement]) -> Iterator[Metric]:
    """The metrics of streams. The field `value` has the name of the stream; other fields append their own name to
    it."""
    for measurement in measurements:
        labels: dict[str, str] = {}
        for column in measurement.tags:
            labels.setdefault(column if column == NAME else _legal(_NOT_IN_LABELS, column), column)
        named = NAME in labels
        fields = [name for name, kind in measurement.fields.items() if kind != "string"]
        for field in fields:
            own = "" if field == "value" or (named and len(fields) == 1) else f"_{field}"
            text = own if named else measurement.name + own
            yield Metric(
                measurement, field, _NOT_IN_NAMES.sub("_", text) if named else _legal(_NOT_IN_NAMES, text), labels
            )


def matches(matcher: ast.LabelMatcher, text: str) -> bool:
    """Whether a label with this value meets the condition. Raises InvalidSql for a pattern that RE2 can't parse."""
    if matcher.operator in ("=", "!="):
        return (text == matcher.value) == (matcher.operator == "=")
    return matching_texts(matcher.value, [text])[0] == (matcher.operator == "=~")


def matching_texts(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Whether the pattern matches the whole of each text. Raises InvalidSql."""
    try:
        found = pc.match_substring_regex(pa.array(texts, pa.string()), f"^(?:{pattern})$")
    except pa.ArrowInvalid as exc:
        raise InvalidSql(f"'{pattern:.80}' is not a regular expression of RE2") from exc
    return [bool(each) for each in found.to_pylist()]


def _condition(expression: str, matcher: ast.LabelMatcher) -> str:
    value = literal(matcher.value)
    if matcher.operator in ("=", "!="):
        return f"{expression} {matcher.operator} {value}"
    negated = "NOT " if matcher.operator == "!~" else ""
    return f"{negated}regexp_full_match({expression}, {value})"


def _legal(wrong: re.Pattern[str], text: str) -> str:
    found = wrong.sub("_", text)
    return f"_{found}" if found[:1].isdigit() else found
