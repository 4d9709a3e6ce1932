"""What the tests of pipelines share: a store with a stream of measurements, and results counted without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.model.columns import TIME_TYPE

SECOND = 1_000_000
BASE = 1_700_000_000 * SECOND  # a multiple of ten seconds
SOURCE = "iot/sensors"
SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())])
COUNTS = """
CREATE STREAM out.counts WITH (key = device, time = closed, watermark = '5 seconds') AS
SELECT window.start AS opened, window.end AS closed, device, count(*) AS events, sum(celsius) AS total
FROM STREAM iot.sensors
GROUP BY window(at, '10 seconds'), device
"""


def new_store(folder: Path, *, segments: int = 2) -> ab.Store:
    """A store with an empty stream of measurements."""
    store = ab.connect(folder, create=True)
    store.scopes.create("iot")
    store.streams.create(SOURCE, schema=SCHEMA, key="device", time="at", scaling=segments)
    return store


def put(store: ab.Store, seconds: Sequence[float], *, stream: str = SOURCE) -> None:
    """One event for each time, in seconds since BASE, as one commit; devices take turns by time."""
    table = pa.table(
        {
            "device": [f"d{int(each) % 3}" for each in seconds],
            "at": pa.array([BASE + round(each * SECOND) for each in seconds], TIME_TYPE),
            "celsius": [float(int(each) % 7) for each in seconds],
        }
    )
    with store.writer(stream) as writer:
        writer.write_batch(table, atomic=True)


def rows(store: ab.Store, stream: str) -> list[dict[str, Any]]:
    """All rows of a stream."""
    with store.reader(stream) as reader:
        return [event.body for event in reader]


def counted(store: ab.Store, stream: str = "out/counts") -> Counter[tuple[int, str, int, float]]:
    """The results of COUNTS, each with how often it is there: window in seconds since BASE, device, events, total."""
    return Counter(
        ((round(row["opened"].timestamp() * SECOND) - BASE) // SECOND, row["device"], row["events"], row["total"])
        for row in rows(store, stream)
    )


def expected(store: ab.Store, *, until: float) -> Counter[tuple[int, str, int, float]]:
    """The same, counted here: every window that ends at `until` (seconds since BASE) or earlier."""
    windows: dict[tuple[int, str], list[float]] = {}
    for row in rows(store, SOURCE):
        start = (round(row["at"].timestamp() * SECOND) - BASE) // (10 * SECOND) * 10
        if start + 10 <= until:
            windows.setdefault((start, row["device"]), []).append(row["celsius"])
    return Counter({(start, device, len(found), sum(found)): 1 for (start, device), found in windows.items()})
