"""A stream as an Arrow dataset, so that DuckDB asks for the columns and rows that a query needs and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.errors import AnabranchError
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.times import to_micros
from anabranch.store import Store

_ROWS_MAX: Final = 65_536
_TIME: Final = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)Z?"
_MICRO: Final = 1
_ALL_TIMES: Final = (-(1 << 63), (1 << 63) - 1)


class StreamDataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """The events between two cuts. DuckDB calls `scanner` once for each time the stream stands in a query."""

    def __init__(self, store: Store, name: StreamName, start: StreamCut, end: StreamCut) -> None:
        # Dataset's own constructor refuses everybody; its methods, of which only these two are used, are replaced.
        self._store = store
        self._name = name
        self._id: StreamId = start.stream
        self._start = start
        self._end = end
        with store.reader(name, start=start, end=end) as reader:
            self._schema = reader.schema
        self._time = store.streams.get(name).schema.time
        self.failure: AnabranchError | None = None  # what reading raised; DuckDB hands on its words alone

    @property
    def schema(self) -> pa.Schema:
        """The stream's columns, then `_segment`, `_offset` and `_appended`."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - DuckDB names it
        **options: Any,
    ) -> ds.Scanner:
        """The rows that pass the filter, with these columns. Only what the two name is read, and of the extents only
        those whose event times may pass."""
        told = "" if filter is None else str(filter)
        names = [
            name
            for name in self._schema.names
            if columns is None or name in columns or (told and name in told)  # one too many does no harm
        ]
        own = [name for name in names if name not in ("_segment", "_offset", "_appended")]
        schema = pa.schema([self._schema.field(name) for name in names])
        between = None if self._time is None else time_bounds(told, self._time)
        batches = self._batches(own, names, schema, between)
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=filter)

    def _batches(
        self, own: list[str], names: list[str], schema: pa.Schema, between: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        options: dict[str, Any] = {"start": self._start, "end": self._end, "columns": own, "between": between}
        try:
            with self._store.reader(self._name, batch_rows=_ROWS_MAX, **options) as reader:
                for batch in reader.batches():
                    yield pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
        except AnabranchError as exc:
            self.failure = exc
            raise


def time_bounds(told: str, column: str) -> tuple[int, int] | None:
    """`low <= time < high` (µs) that every row passing a filter fulfils, or None. `told` is the filter as pyarrow
    prints it: bounds are taken from plain comparisons with constants that are joined by `and`; anything else that
    might turn their meaning around makes it None."""
    if not told or any(word in told for word in ('"', "'", " or ", "invert", "if_else", "case_when", "xor", "is_null")):
        return None
    low, high = _ALL_TIMES
    for relation, text in re.findall(rf"\({re.escape(column)} (>=|>|<=|<|==) {_TIME}\)", told):
        micros = int(to_micros(text))
        if relation in (">=", ">", "=="):
            low = max(low, micros + (_MICRO if relation == ">" else 0))
        if relation in ("<", "<=", "=="):
            high = min(high, micros + (0 if relation == "<" else _MICRO))
    return None if (low, high) == _ALL_TIMES else (low, max(low, high))
