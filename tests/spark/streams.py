"""A store with a stream in it, for tests of the data source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.model.columns import TIME_TYPE

SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("n", pa.int64())])


def new_store(folder: Path, *, segments: int = 2, schema: pa.Schema = SCHEMA) -> ab.Store:
    """A store with the stream `s/in`, keyed by device, timed by at."""
    store = ab.connect(folder / "store", create=True)
    store.scopes.create("s")
    time = "at" if "at" in schema.names else None
    store.streams.create("s/in", schema=schema, key="device", time=time, scaling=segments)
    return store


def rows(first: int, count: int, *, keys: int = 7) -> pa.Table:
    """Events numbered from `first`: their `n`, and their time in ms."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "device": [f"d{n % keys}" for n in numbers],
            "at": pa.array([n * 1000 for n in numbers], TIME_TYPE),
            "n": pa.array(numbers, pa.int64()),
        }
    )


def write(store: ab.Store, first: int, count: int, *, commits: int = 1, stream: str = "s/in") -> None:
    """Append events in so many commits."""
    with store.writer(stream) as writer:
        each = -(-count // commits)
        for begin in range(first, first + count, each):
            writer.write_batch(rows(begin, min(each, first + count - begin)), atomic=True)
            writer.flush()


def table(store: ab.Store, stream: str = "s/in", **options: Any) -> pa.Table:
    """What a reader of the store itself reads, by segment and offset."""
    with store.reader(stream, **options) as reader:
        found = pa.Table.from_batches(reader.batches(), reader.schema)
    return found.sort_by([("_segment", "ascending"), ("_offset", "ascending")])


def numbers(store: ab.Store, stream: str = "s/in") -> list[int]:
    """The events' numbers, sorted."""
    found: list[int] = sorted(table(store, stream).column("n").to_pylist())
    return found


def by_place(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """A DataFrame's rows, by segment and offset."""
    found = frame.orderBy("_segment", "_offset")
    return (found if columns is None else found.select(*columns)).toArrow()
