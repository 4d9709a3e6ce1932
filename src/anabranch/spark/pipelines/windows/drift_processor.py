"""Spark's stateful operator that detects drift in buckets of keys. Each bucket is one key in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from anabranch.spark.pipelines.windows.columns import KEY
from anabranch.spark.pipelines.windows.drift import DriftDetector, detect
from anabranch.spark.pipelines.windows.processor import in_stream_order
from anabranch.spark.pipelines.windows.row_blobs import BLOB, blobs_of, pack, unpack

__all__ = ["DriftProcessor"]


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
        came = in_stream_order(rows, keep_order=True)
        assert came is not None, "Spark calls it for buckets that have rows"
        known = self._trackers.get()
        keys = [f"{KEY}{number}" for number in range(max(1, len(self._detector.keys)))]
        found = detect(came, None if known is None else unpack(known[0]), self._detector, keys)
        self._trackers.update((pack(found.state, compressed=True),))
        if found.changes.num_rows:
            names = [*self._detector.keys, *found.changes.column_names[len(keys) :]]
            own = found.changes if self._detector.keys else found.changes.drop_columns(keys)
            yield pd.DataFrame({BLOB: blobs_of(own.rename_columns(names))})
