"""A stream of numbered events, and what its readers yield."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.log.upkeep.compact import compact
from anabranch.reading.reader import Reader

SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
T0 = 1_700_000_000_000_000


def reader(store: ab.Store, name: str = "s/a", **options: Any) -> Reader:
    return store.reader(name, **options)


def create(store: ab.Store, segments: int = 1, name: str = "s/a") -> None:
    store.streams.create(name, schema=SCHEMA, key="device", time="at", scaling=ab.Fixed(segments))


def table(first: int, count: int, keys: int = 5) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"device": [f"d{i % keys}" for i in numbers], "at": [T0 + i for i in numbers], "n": list(numbers)},
        schema=pa.schema([("device", pa.string()), ("at", pa.int64()), ("n", pa.int64())]),
    ).cast(SCHEMA)


def write(store: ab.Store, first: int, count: int, name: str = "s/a", size: int = 100) -> None:
    """Events numbered from `first`, in appends of `size`, so that there are several extents."""
    with store.writer(name) as writer:
        for start in range(first, first + count, size):
            writer.write_batch(table(start, min(size, first + count - start))).result()


def squeeze(store: ab.Store) -> None:
    report = compact(store.catalog, store.blobs, store.runtime, force=True)
    assert report.files


def numbers(source: Any) -> list[int]:
    """The column `n` of what a reader yields, in reading order."""
    if hasattr(source, "position"):  # a reader, of whatever store
        return [event.body["n"] for event in source]
    return [n for batch in source for n in batch.column("n").to_pylist()]


def assert_order_of_keys(read: list[int], keys: int = 5) -> None:
    for key in range(keys):
        mine = [n for n in read if n % keys == key]
        assert mine == sorted(mine)


def no_change(store: ab.Store) -> None:
    """The store as it was written."""


BOTH_TIERS = pytest.mark.parametrize("tier", [no_change, squeeze], ids=["fresh", "compacted"])
