"""A user's file as a stream: finds the time among its columns, and makes a pipeline that fits its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.cli.formats import TimeUnit
from anabranch.cli.intake.batch import all_valid
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.open import open_intake
from anabranch.cli.intake.source import BadInput, IntakeSource
from anabranch.cli.intake.times import NotATime, TimeReading
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.model.times import DEFAULT_RULES, TimeRules
from anabranch.store import Store

SCOPE: Final = "file"
# A file is read in about a dozen micro-batches, so that there is something to watch, and windows close before all
# events are read. Events out of order by more than a window are then late, as they would have been with live events.
BATCHES_WANTED: Final = 12
BATCH_ROWS_MIN: Final = 500
BATCH_ROWS_MAX: Final = 500_000
KEYS_MAX: Final = 200  # more groups would fill the screen without being useful
VALUES_MAX: Final = 3
WINDOWS_WANTED: Final = 30
EARLIEST_YEAR: Final = 1980

_TIME_NAMES = re.compile(r"(?i)^(at|ts|t|time|timestamp|date|datetime|event_?time|created_?at)$|time|date|stamp")
_UNIT_LIMITS: Final = ((1e11, TimeUnit.s), (1e14, TimeUnit.ms), (1e17, TimeUnit.us))  # of numbers since 1970
_SIZES: Final = {
    f"{n} {unit}": n * length
    for unit, length, counts in (
        ("milliseconds", 1_000, (100, 500)),
        ("seconds", 1_000_000, (1, 2, 5, 10, 15, 30)),
        ("minutes", 60_000_000, (1, 2, 5, 10, 15, 30)),
        ("hours", 3_600_000_000, (1, 2, 3, 6, 12)),
        ("days", 86_400_000_000, (1, 2, 7, 14, 28)),
    )
    for n in counts
}
_SMOOTH: Final = 4  # length of a sliding window, in tumbling windows


@dataclass(frozen=True)
class UserFile:
    """A file's rows, with the `time` column as a timestamp. `key` is the routing key column or None."""

    path: Path
    rows: pa.Table
    time: str
    key: str | None

    @property
    def name(self) -> str:
        """The file's name as part of a stream's."""
        return re.sub(r"\W+", "_", self.path.name.partition(".")[0]).strip("_") or "rows"

    @property
    def stream(self) -> str:
        """The name of the stream for the rows."""
        return f"{SCOPE}/{self.name}"

    @property
    def values(self) -> list[str]:
        """Up to `VALUES_MAX` columns of numbers."""
        numbers = [each.name for each in self.rows.schema if _is_number(each.type) and each.name != self.key]
        return numbers[:VALUES_MAX]

    @property
    def batch_rows(self) -> int:
        """The number of rows written at once, and read in one micro-batch."""
        return int(min(max(self.rows.num_rows // BATCHES_WANTED, BATCH_ROWS_MIN), BATCH_ROWS_MAX))

    @property
    def sql(self) -> str:
        """The pipeline: a tumbling window, about `WINDOWS_WANTED` of which cover the file's times, and a sliding one.
        Grouped by the routing key too, unless it has more than `KEYS_MAX` values."""
        bounds = pc.min_max(self.rows.column(self.time)).as_py()
        span_us = (bounds["max"] - bounds["min"]).total_seconds() * 1e6
        size = next((text for text, us in _SIZES.items() if us * WINDOWS_WANTED >= span_us), list(_SIZES)[-1])
        grouped = self.key is not None and len(pc.unique(self.rows.column(self.key))) <= KEYS_MAX
        return Template(files("anabranch.cli.demo").joinpath("file.sql").read_text()).substitute(
            file=self.path.name,
            scope=SCOPE,
            name=self.name,
            time=f"`{self.time}`",
            size=size,
            long=f"{_SIZES[size] * _SMOOTH // 1000} milliseconds",
            key=f"\n  `{self.key}`," if grouped else "",
            group=f", `{self.key}`" if grouped else "",
            values="".join(f",\n  avg(`{name}`) AS `mean_{name}`" for name in self.values),
        )

    def write(self, store: Store) -> None:
        """Write the rows in the file's order, after those that an earlier run has written. Raises InvalidArgument if
        the stream was made from another file."""
        store.scopes.create(SCOPE, exist_ok=True)
        count = self.rows.num_rows
        if not store.streams.exists(self.stream):
            # One segment, so that its length is the number of rows already written.
            tags = {"file": self.path.name, "rows": str(count)}
            store.streams.create(self.stream, schema=self.rows.schema, key=self.key, time=self.time, tags=tags)
        info = store.streams.get(self.stream)
        if dict(info.tags).get("rows") != str(count) or info.schema.time != self.time:
            raise InvalidArgument(
                f"'{self.stream}' in this store was made from another file, or with another --time; give another --store"
            )
        written = store.cuts.distance(self.stream).events
        with store.writer(self.stream) as writer:
            for start in range(written, count, self.batch_rows):
                writer.write_batch(self.rows.slice(start, self.batch_rows), atomic=True)


def load(path: Path, *, time: str | None = None, key: str | None = None) -> UserFile:
    """Read a file as `anabranch write` does, and find its time column. `key` is the routing key, by default the first
    column of text. Raises InvalidArgument if the file can't be used."""
    rows = _read(path)
    if not rows.num_rows:
        raise InvalidArgument(f"{path} holds no rows")
    columns = rows.column_names
    for name in (time, key):
        if name is not None and name not in columns:
            raise InvalidArgument(f"{path} has no column '{name}'; it has {', '.join(columns)}")
    time = time or _find_time(rows, path)
    rows = rows.set_column(columns.index(time), pa.field(time, TIME_TYPE), _as_time(rows.column(time), time, path))
    if rows.column(time).null_count == rows.num_rows:
        raise InvalidArgument(f"{path}: column '{time}' holds no time")
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type)]
    return UserFile(path, rows, time, key or next(iter(texts), None))


def _read(path: Path) -> pa.Table:
    with IntakeSource(path) as source:
        try:
            intake = open_intake(source, None, present=None)
            columns = intake.schema()
            if columns is None:
                raise InvalidArgument(f"{path} holds plain lines, which have no columns")
            schema = StreamSchema.typed(columns)
            rows = all_valid(intake.batches(TargetColumns(schema)))
            read = [to_stored_table(each, schema, DEFAULT_RULES) for each in rows]
        except BadInput as exc:
            raise InvalidArgument(f"{path}, {exc}") from exc
    return pa.concat_tables([schema.columns.empty_table(), *read])


def _find_time(rows: pa.Table, path: Path) -> str:
    stamps = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    dates = [field.name for field in rows.schema if pa.types.is_date(field.type)]
    named = [field.name for field in rows.schema if _TIME_NAMES.search(field.name) and _is_number(field.type)]
    for name in (*stamps, *dates, *named):
        first = pc.min(_as_time(rows.column(name).slice(0, 1000), name, path)).as_py()
        # A column such as `runtime_s` also has a matching name and numbers, but as times they would be in 1970.
        if first is not None and first.year >= EARLIEST_YEAR:
            return str(name)
    raise InvalidArgument(
        f"no column of {path} looks like a time; name one with --time: {', '.join(rows.column_names)}"
    )


def _as_time(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    """The column as timestamps. The unit of numbers since 1970 follows from their magnitude."""
    reading = TimeReading(TimeRules(truncate=True))
    if _is_number(column.type):
        largest = pc.max(pc.abs(column)).as_py() or 0
        unit = next((unit for limit, unit in _UNIT_LIMITS if largest < limit), TimeUnit.ns)
        reading = TimeReading(TimeRules(truncate=True), unit)
    try:
        return reading.column(column, TIME_TYPE)
    except NotATime as exc:
        raise InvalidArgument(f"{path}, row {exc.row + 1}: column '{name}' holds no time: {exc}") from exc


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
