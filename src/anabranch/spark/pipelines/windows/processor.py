"""Spark's stateful operators over buckets of keys. Each bucket is one key in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import StreamId
from anabranch.spark.pipelines.windows.columns import COUNT_WINDOW, KEY, NUMBER, OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.count import CountWindow, advance_counts, complete_windows
from anabranch.spark.pipelines.windows.drift import DriftDetector, detect
from anabranch.spark.pipelines.windows.emit import EmitPolicy
from anabranch.spark.pipelines.windows.panes import Advanced, BucketState, advance
from anabranch.spark.pipelines.windows.row_blobs import BLOB, NOW, blobs_of, pack, unpack
from anabranch.spark.pipelines.windows.session_panes import advance_sessions
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["CountWindows", "DriftProcessor", "PaneWindows"]


class CountWindows(StatefulProcessor):
    """Emits the events of windows of a number of events: of those that are complete, or with a policy of the panes that are
    due. Keeps those of open windows."""

    def __init__(
        self, window: CountWindow, policy: EmitPolicy | None, keys: int, columns: list[str], stream: StreamId
    ) -> None:
        """`keys`: how many columns a key has. `columns` are emitted. `stream` is the one that is read."""
        self._window = window
        self._policy = policy
        self._keys = [f"{KEY}{number}" for number in range(keys)]
        self._columns = columns
        self._stream = stream

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._open = handle.getValueState("open", f"{BLOB} BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Add the rows of the micro-batch to the bucket `key`, and return the events of windows or panes that are due."""
        del key, timerValues
        frames = list(rows)
        came = _in_stream_order(frames, keep_order=self._policy is not None)
        kept = self._open.get()
        known = None if kept is None else unpack(kept[0])
        if came is None and known is None:
            return
        emitted, left = self._completed(known, came) if self._policy is None else self._panes(known, came, frames)
        if left.num_rows:
            self._open.update((pack(left, compressed=True),))
        else:
            self._open.clear()
        if emitted is not None and emitted.num_rows:
            yield pd.DataFrame({BLOB: blobs_of(emitted)})

    def _completed(self, known: pa.Table | None, came: pa.Table | None) -> tuple[pa.Table, pa.Table]:
        rows = pa.concat_tables([each for each in (known, came) if each is not None]).combine_chunks()
        found = complete_windows(rows, self._keys, self._window)
        return _with_windows(found.rows, self._window.size, self._columns), found.open

    def _panes(
        self, known: pa.Table | None, came: pa.Table | None, frames: list[pd.DataFrame]
    ) -> tuple[pa.Table | None, pa.Table]:
        assert self._policy is not None
        found = advance_counts(
            known,
            came,
            self._keys,
            self._columns,
            self._window,
            self._policy,
            stream=self._stream,
            now_us=int(frames[0][NOW].iloc[0]),
        )
        return found.emitted, found.open


class PaneWindows(StatefulProcessor):
    """Emits the events of the panes of time windows that are due."""

    def __init__(self, window: StatementWindow, policy: EmitPolicy, keys: int, columns: list[str]) -> None:
        """`keys`: how many columns a key has. `columns` are emitted."""
        self._window = window
        self._policy = policy
        self._keys = [f"{KEY}{number}" for number in range(keys)]
        self._columns = columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        self._state = handle.getValueState("windows", "rows BINARY, windows BINARY, watermark BIGINT, timer BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Add the rows of the micro-batch to the bucket `key`, and return the events of panes that are due."""
        del key
        return self._advance(_in_stream_order(rows), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """The watermark has reached the timer of the bucket `key`: return the events of panes that are due."""
        del key, expiredTimerInfo
        return self._advance(None, timerValues)

    def _advance(self, came: pa.Table | None, times: TimerValues) -> Iterator[pd.DataFrame]:
        known = self._state.get()
        if known is None and came is None:
            return
        if known is None:
            assert came is not None
            state, timer = BucketState(came.slice(0, 0)), None
        else:
            rows, windows, watermark_us, timer = known
            state = BucketState(unpack(rows), unpack(windows) if windows else None, watermark_us)
        found = (advance_sessions if self._window.is_session else advance)(
            state,
            came,
            self._keys,
            self._columns,
            self._window,
            self._policy,
            watermark_us=times.getCurrentWatermarkInMs() * 1_000,
            now_us=times.getCurrentProcessingTimeInMs() * 1_000,
        )
        self._keep(found, timer)
        if found.emitted is not None:
            yield pd.DataFrame({BLOB: blobs_of(found.emitted)})

    def _keep(self, found: Advanced, timer: int | None) -> None:
        state = found.state
        due = None if found.due_us is None else -(-found.due_us // 1_000)
        if timer is not None and timer != due:
            self._handle.deleteTimer(timer)
        if due is None:
            self._state.clear()
            return
        if timer != due:
            self._handle.registerTimer(due)
        windows = b"" if state.windows is None else pack(state.windows, compressed=True)
        self._state.update((pack(state.rows, compressed=True), windows, state.watermark_us, due))


class DriftProcessor(StatefulProcessor):
    """Emits the changes that a detector finds; keeps a detector for each key."""

    def __init__(self, detector: DriftDetector) -> None:
        self._detector = detector

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._trackers = handle.getValueState("trackers", f"{BLOB} BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Give the rows of the micro-batch to the detectors of the bucket `key`, and return the changes found."""
        del key, timerValues
        came = _in_stream_order(rows, keep_order=True)
        assert came is not None, "Spark calls it for buckets that have rows"
        known = self._trackers.get()
        keys = [f"{KEY}{number}" for number in range(max(1, len(self._detector.keys)))]
        found = detect(came, None if known is None else unpack(known[0]), self._detector, keys)
        self._trackers.update((pack(found.state, compressed=True),))
        if found.changes.num_rows:
            names = [*self._detector.keys, *found.changes.column_names[len(keys) :]]
            own = found.changes if self._detector.keys else found.changes.drop_columns(keys)
            yield pd.DataFrame({BLOB: blobs_of(own.rename_columns(names))})


def _in_stream_order(frames: Iterable[pd.DataFrame], *, keep_order: bool = False) -> pa.Table | None:
    """The rows of blobs in the order of their segments and offsets, unless `keep_order` without the columns that say
    so; None without rows. A shuffle keeps no order."""
    parts = [unpack(blob) for frame in frames for blob in frame[BLOB] if len(blob)]
    if not parts:
        return None
    rows = pa.concat_tables(parts).combine_chunks()
    order = np.lexsort((rows.column(OFFSET).to_numpy(), rows.column(SEGMENT).to_numpy()))
    return (rows if keep_order else rows.drop_columns([SEGMENT, OFFSET])).take(pa.array(order))


def _with_windows(rows: pa.Table, size: int, columns: list[str]) -> pa.Table:
    """These columns and the window of each row: from its earliest to its latest event time."""
    times = rows.column(TIME).cast(pa.int64()).to_numpy().reshape(-1, size)
    bounds = [pa.array(np.repeat(each, size)).cast(TIME_TYPE) for each in (times.min(axis=1), times.max(axis=1))]
    windows = pa.StructArray.from_arrays(bounds, names=["start", "end"])
    numbers = pa.array(np.repeat(np.arange(len(times), dtype=np.int64), size))
    return rows.select(columns).append_column(COUNT_WINDOW, windows).append_column(NUMBER, numbers)
