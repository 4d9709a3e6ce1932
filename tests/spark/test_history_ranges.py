"""Ranges of history in Spark: each is a small value that a task opens by itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.store.history_range import HistoryRange

pytestmark = pytest.mark.spark

EVENTS = 300


@pytest.mark.slow
def test_tasks_open_the_ranges_they_are_sent(spark: SparkSession, tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        with store.writer("s/a") as writer:
            for number in range(EVENTS):
                writer.write(b"%d" % number, key=f"k{number % 7}")
                if number % 50 == 0:  # what is written at once may lie in one piece, which no range divides
                    writer.flush()
                if number == EVENTS // 2:
                    store.streams.scale("s/a", 3)
                    store.compact(force=True)
        parts = store.history("s/a").ranges(bytes_max=500)
        assert len(parts) > 4
        assert max(len(pickle.dumps(part)) for part in parts) < 1_000
        told = spark.sparkContext.parallelize(parts, 3).mapPartitions(_pointers).collect()
        assert sorted(int(body) for _, body in told) == list(range(EVENTS))
        assert all(store.fetch(ab.EventPointer.parse(pointer)).body == body for pointer, body in told[::50])


def _pointers(parts: Iterable[HistoryRange]) -> Iterator[tuple[str, bytes]]:
    for part in parts:
        for batch in part.batches(["payload"]):
            rows = zip(batch.column("_offset").to_pylist(), batch.column("payload").to_pylist(), strict=True)
            yield from ((str(part.pointer(offset)), body) for offset, body in rows)
