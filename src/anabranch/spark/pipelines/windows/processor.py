"""Spark's stateful operator over buckets of keys, for windows of a number of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.windows.columns import COUNT_WINDOW, KEY, NUMBER, OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.count import CountWindow, complete_windows
from anabranch.spark.pipelines.windows.row_blobs import BLOB, blobs_of, pack, unpack

__all__ = ["CountWindows", "in_stream_order"]


class CountWindows(StatefulProcessor):
    """Emits the events of complete windows, with their window; keeps the others. One key of Spark's is a bucket."""

    def __init__(self, window: CountWindow, keys: int, columns: list[str]) -> None:
        """`keys`: how many columns a key has. `columns` are emitted."""
        self._window = window
        self._keys = keys
        self._columns = columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._open = handle.getValueState("open", f"{BLOB} BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Of the bucket `key`."""
        del key, timerValues
        came = in_stream_order(unpack(blob) for frame in rows for blob in frame[BLOB])
        known = self._open.get()
        all_rows = came if known is None else pa.concat_tables([unpack(known[0]), came]).combine_chunks()
        found = complete_windows(all_rows, [f"{KEY}{number}" for number in range(self._keys)], self._window)
        if found.open.num_rows:
            self._open.update((pack(found.open, compressed=True),))
        else:
            self._open.clear()
        if found.rows.num_rows:
            yield pd.DataFrame({BLOB: blobs_of(_with_windows(found.rows, self._window.size, self._columns))})


def in_stream_order(parts: Iterator[pa.Table]) -> pa.Table:
    """The rows in the order of their segments and offsets, without the columns that say so. A shuffle keeps no order."""
    rows = pa.concat_tables(parts).combine_chunks()
    order = np.lexsort((rows.column(OFFSET).to_numpy(), rows.column(SEGMENT).to_numpy()))
    return rows.drop_columns([SEGMENT, OFFSET]).take(pa.array(order))


def _with_windows(rows: pa.Table, size: int, columns: list[str]) -> pa.Table:
    """These columns and the window of each row: from its earliest to its latest event time."""
    times = rows.column(TIME).cast(pa.int64()).to_numpy().reshape(-1, size)
    bounds = [pa.array(np.repeat(each, size)).cast(TIME_TYPE) for each in (times.min(axis=1), times.max(axis=1))]
    windows = pa.StructArray.from_arrays(bounds, names=["start", "end"])
    numbers = pa.array(np.repeat(np.arange(len(times), dtype=np.int64), size))
    return rows.select(columns).append_column(COUNT_WINDOW, windows).append_column(NUMBER, numbers)
