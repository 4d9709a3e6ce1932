"""A stream as an Arrow dataset, from which DuckDB requests only the columns and rows that a query needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.errors import Closed
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from anabranch.model.times import TimeRules, to_micros
from anabranch.query.scan import Scan, Scans
from anabranch.store import Store

_ROWS_MAX: Final = 65_536
_TIME: Final = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)Z?"
_MICRO: Final = 1
_AS_UTC: Final = TimeRules("UTC", truncate=True)  # as pyarrow prints them
_ALL_TIMES: Final = (-(1 << 63), (1 << 63) - 1)


class StreamDataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """The events between two cuts. DuckDB calls `scanner` once for each occurrence of the stream in a query."""

    def __init__(
        self,
        store: Store,
        name: StreamName,
        start: StreamCut,
        end: StreamCut,
        scans: Callable[[], Scans] | None = None,
    ) -> None:
        """`scans` returns the owner of the scans of the current query."""
        # Dataset's own constructor always raises, so it is not called. DuckDB uses only the two methods defined here.
        self._store = store
        self._name = name
        self._start = start
        self._end = end
        self._scans = scans or (lambda: Scans(store.runtime.tasks))
        with store.reader(name, start=start, end=end) as reader:
            self._schema = reader.schema
        self._time = store.streams.get(name).schema.time
        # A filter on such a column looks like one on the time.
        if any(f"({self._time}" in column for column in self._schema.names):
            self._time = None

    @property
    def schema(self) -> pa.Schema:
        """The stream's columns, then `_segment`, `_offset` and `_appended`."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - DuckDB names it
        **options: Any,
    ) -> Scan:
        """The rows that pass the filter, with these columns. Reads only the columns named by `columns` or the filter,
        and only extents whose event times may pass."""
        condition = "" if filter is None else str(filter)
        names = [
            name
            for name in self._schema.names
            if columns is None or name in columns or (condition and name in condition)  # an extra column does no harm
        ]
        own = [name for name in names if name not in ("_segment", "_offset", "_appended")]
        schema = pa.schema([self._schema.field(name) for name in names])
        between = None if self._time is None else time_bounds(condition, self._time)
        batches = self._batches(own, names, schema, between)
        return Scan(self._scans(), batches, schema, columns=columns, filter=filter)

    def _batches(
        self, own: list[str], names: list[str], schema: pa.Schema, between: tuple[int, int] | None
    ) -> Generator[pa.RecordBatch]:
        options: dict[str, Any] = {"start": self._start, "end": self._end, "columns": own, "between": between}
        with self._store.reader(self._name, batch_rows=_ROWS_MAX, **options) as reader:
            for batch in reader.batches():
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
            if reader.closed:  # the store was closed: the rows read so far must not be mistaken for all
                raise Closed("query")


def time_bounds(condition: str, column: str) -> tuple[int, int] | None:
    """Bounds `low <= time < high` (µs) that hold for every row that passes a filter, or None. `condition` is the filter
    as pyarrow prints it. Bounds are taken from plain comparisons with constants joined by `and`; any other operator
    that could change their meaning makes the result None."""
    if not condition or any(
        word in condition for word in ('"', "'", " or ", "invert", "if_else", "case_when", "xor", "is_null")
    ):
        return None
    low, high = _ALL_TIMES
    for relation, text in re.findall(rf"\({re.escape(column)} (>=|>|<=|<|==) {_TIME}\)", condition):
        micros = int(to_micros(text, _AS_UTC))
        if relation in (">=", ">", "=="):
            low = max(low, micros + (_MICRO if relation == ">" else 0))
        if relation in ("<", "<=", "=="):
            high = min(high, micros + (0 if relation == "<" else _MICRO))
    return None if (low, high) == _ALL_TIMES else (low, max(low, high))
