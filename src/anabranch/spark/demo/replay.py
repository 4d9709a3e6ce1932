"""A user's file as a stream: what its columns mean, and its rows as fast as the store takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.model.columns import TIME_TYPE, plain_type
from anabranch.runtime.tasks import Task
from anabranch.spark.demo.job import Job
from anabranch.spark.demo.proof import Claim
from anabranch.store import Store

__all__ = ["Replay", "Rows", "load"]

SCOPE: Final = "file"
FILE_BYTES_MAX: Final = 2 << 30
# A file is read in about a dozen micro-batches, so that there is something to watch, and windows close while events are
# still to come: those that are out of order by more than a window then are late, as they would have been live.
BATCHES_WANTED: Final = 12
BATCH_ROWS_MIN: Final = 500
BATCH_ROWS_MAX: Final = 500_000
KEYS_MAX: Final = 200  # more groups than that would fill the screen and say little
VALUES_MAX: Final = 3
WINDOWS_WANTED: Final = 30
EARLIEST_YEAR: Final = 1980

_TIME_NAMES = re.compile(r"(?i)^(at|ts|t|time|timestamp|date|datetime|event_?time|created_?at)$|time|date|stamp")
_SIZES: Final = {
    **{f"{n} milliseconds": n * 1_000 for n in (100, 500)},
    **{f"{n} seconds": n * 1_000_000 for n in (1, 2, 5, 10, 15, 30)},
    **{f"{n} minutes": n * 60_000_000 for n in (1, 2, 5, 10, 15, 30)},
    **{f"{n} hours": n * 3_600_000_000 for n in (1, 2, 3, 6, 12)},
    **{f"{n} days": n * 86_400_000_000 for n in (1, 2, 7, 14, 28)},
}
_SMOOTH: Final = 4  # a sliding window is as long as so many tumbling ones


class Rows:
    """A file's rows with their time as a timestamp. `key` and `values` are columns, or None and few."""

    def __init__(self, path: Path, table: pa.Table, time: str, key: str | None, values: tuple[str, ...]) -> None:
        self.path = path
        self.table = table
        self.time = time
        self.key = key
        self.values = values
        self.name = re.sub(r"\W+", "_", path.name.partition(".")[0]).strip("_") or "rows"

    @property
    def stream(self) -> str:
        """The stream that holds them."""
        return f"{SCOPE}/{self.name}"

    @property
    def batch_rows(self) -> int:
        """How many are written at once, and read at once."""
        rows: int = self.table.num_rows
        return min(max(rows // BATCHES_WANTED, BATCH_ROWS_MIN), BATCH_ROWS_MAX)

    @property
    def grouped_key(self) -> str | None:
        """The key by which windows are grouped: the column of that role, unless it has too many values."""
        if self.key is None or len(pc.unique(self.table.column(self.key))) > KEYS_MAX:
            return None
        return self.key

    def job(self) -> Job:
        """A tumbling window, of which the file's time holds some dozens, and a sliding one."""
        bounds = pc.min_max(self.table.column(self.time)).as_py()
        if bounds["min"] is None:
            raise InvalidArgument(f"{self.path}: column '{self.time}' holds no time")
        span_us = (bounds["max"] - bounds["min"]).total_seconds() * 1e6
        size = next((text for text, us in _SIZES.items() if us * WINDOWS_WANTED >= span_us), list(_SIZES)[-1])
        size_us = _SIZES[size]
        group = self.grouped_key
        sql = Template(files("anabranch.spark.demo").joinpath("file.sql").read_text()).substitute(
            file=self.path.name,
            scope=SCOPE,
            name=self.name,
            time=f"`{self.time}`",
            size=size,
            long=f"{size_us * _SMOOTH // 1000} milliseconds",
            key=f"\n  `{group}`," if group else "",
            group=f", `{group}`" if group else "",
            values="".join(f",\n  avg(`{name}`) AS `mean_{name}`" for name in self.values),
        )
        claims = tuple(
            Claim(self.stream, self.time, f"{self.stream}_{kind}", f"{self.stream}_{kind}_late", us, size_us)
            for kind, us in (("windows", size_us), ("smooth", size_us * _SMOOTH))
        )
        return Job(f"demo-{self.name}", sql, claims, events_max=self.batch_rows)


def load(path: Path, *, time: str | None = None, key: str | None = None) -> Rows:
    """Read a CSV, JSON lines or Parquet file (`.gz` and the like too), and find out which column is the time.

    `key` is the routing key, by default the first text column. Raises InvalidArgument with what is missing.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidArgument(
                f"{path} is over {FILE_BYTES_MAX >> 30} GiB: write it with anabranch write, then query it"
            )
        table = _read(path)
    except (OSError, pa.ArrowInvalid) as exc:
        reason = getattr(exc, "strerror", None) or str(exc).splitlines()[0]
        raise InvalidArgument(f"{path} can't be read: {reason}") from exc
    if table.num_rows == 0:
        raise InvalidArgument(f"{path} holds no rows")
    table = pa.table({name: _storable(table.column(name)) for name in table.column_names})
    time = _find_time(table, path, time)
    index = table.column_names.index(time)
    table = table.set_column(index, time, _as_time(table.column(time), time, path))
    if key is not None and key not in table.column_names:
        raise InvalidArgument(f"{path} has no column '{key}'; it has {', '.join(table.column_names)}")
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    numbers = [
        field.name
        for field in table.schema
        if (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)) and field.name != key
    ]
    return Rows(path, table, time, key or next(iter(texts), None), tuple(numbers[:VALUES_MAX]))


def _read(path: Path) -> pa.Table:
    from pyarrow import csv, json, parquet

    kinds: dict[str, Callable[[], pa.Table]] = {
        ".csv": lambda: csv.read_csv(path),
        ".tsv": lambda: csv.read_csv(path, parse_options=csv.ParseOptions(delimiter="\t")),
        ".jsonl": lambda: json.read_json(path),
        ".ndjson": lambda: json.read_json(path),
        ".json": lambda: json.read_json(path),
        ".parquet": lambda: parquet.read_table(path),
    }
    kind = next((suffix.lower() for suffix in path.suffixes[::-1] if suffix.lower() in kinds), None)
    if kind is None:
        raise InvalidArgument(f"{path}: which format is that? Give a file that ends in {', '.join(kinds)}")
    return kinds[kind]()


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that streams have; text where there is none."""
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    try:
        return column.cast(plain_type(column.type))
    except InvalidArgument:
        return column.cast(pa.string())


def _find_time(table: pa.Table, path: Path, wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in table.column_names:
            raise InvalidArgument(f"{path} has no column '{wanted}'; it has {', '.join(table.column_names)}")
        return wanted
    stamps = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    named = [
        field.name for field in table.schema if _TIME_NAMES.search(field.name) and not pa.types.is_boolean(field.type)
    ]
    dates = [field.name for field in table.schema if pa.types.is_date(field.type)]
    for name in (*stamps, *dates, *named):
        try:
            first = pc.min(_as_time(table.column(name).slice(0, 1000), name, path)).as_py()
        except InvalidArgument:
            continue
        # A column called `runtime_s` holds numbers too, but as times they would lie in 1970.
        if first is not None and first.year >= EARLIEST_YEAR:
            return str(name)
    raise InvalidArgument(
        f"no column of {path} looks like a time; name one with --time: {', '.join(table.column_names)}"
    )


def _as_time(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    """Timestamps, dates, ISO 8601 text, or numbers since 1970 in s, ms, µs or ns (their size tells which)."""
    kind = column.type
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return column.cast(pa.timestamp("us")).cast(TIME_TYPE) if not _zoned(kind) else column.cast(TIME_TYPE)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return _since_1970(column)
        if pa.types.is_string(kind):
            return _from_text(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as exc:
        raise InvalidArgument(f"{path}: column '{name}' holds what is no time: {str(exc).splitlines()[0]}") from exc
    raise InvalidArgument(f"{path}: column '{name}' of type {kind} can't be a time")


def _since_1970(column: pa.ChunkedArray) -> pa.ChunkedArray:
    largest = pc.max(pc.abs(column)).as_py() or 0
    if pa.types.is_floating(column.type):
        scale = next((each for limit, each in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)) if largest < limit), 1e-3)
        micros = pc.round(pc.multiply(column, scale))
    elif largest < 10**17:
        scale = next(each for limit, each in ((10**11, 10**6), (10**14, 10**3), (10**17, 1)) if largest < limit)
        micros = pc.multiply(column.cast(pa.int64()), scale)
    else:
        micros = pc.divide(column, 1000)
    return micros.cast(pa.int64()).cast(TIME_TYPE)


def _zoned(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _from_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    def micros(text: str | None) -> datetime | None:
        if not text:
            return None
        moment = datetime.fromisoformat(text.strip())
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    return pa.chunked_array([pa.array([micros(text) for text in column.to_pylist()], TIME_TYPE)])


class Replay:
    """Writes the rows, in the file's order, behind those that an earlier run has written already.

    `error` is what ended it before its time, or None; `done` is True when there is nothing more to write.
    """

    def __init__(self, store: Store, rows: Rows) -> None:
        self.error: AnabranchError | None = None
        self.events = 0
        self.done = False
        self.total = rows.table.num_rows
        self._store = store
        self._rows = rows
        self._closed = False
        streams = store.streams
        streams.create_scope(SCOPE, exist_ok=True)
        if not streams.exists(rows.stream):
            # One segment: its length then says how much of the file was written.
            tags = {"file": rows.path.name, "rows": str(rows.table.num_rows)}
            streams.create(rows.stream, schema=rows.table.schema, key=rows.key, time=rows.time, tags=tags)
        info = streams.get(rows.stream)
        if dict(info.tags).get("rows") != str(rows.table.num_rows) or info.schema.time != rows.time:
            raise InvalidArgument(
                f"'{rows.stream}' in this store was made from another file, or with another --time; give another --store"
            )
        self.before = streams.distance(rows.stream).events
        self._task: Task = store.runtime.tasks.spawn("replay", self._work)

    def close(self) -> None:
        """Stop writing; what was written is durable. A second call is harmless."""
        self._closed = True
        self._task.join()

    def _work(self) -> None:
        try:
            with self._store.writer(self._rows.stream) as writer:
                for start in range(self.before, self.total, self._rows.batch_rows):
                    if self._closed:
                        return
                    part = self._rows.table.slice(start, self._rows.batch_rows)
                    writer.write_batch(part, atomic=True).result()
                    self.events += part.num_rows
            self.done = True
        except AnabranchError as exc:
            self.error = exc
