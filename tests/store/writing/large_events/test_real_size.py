"""Large events as large as they may be."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.log.parquet.reader import ParquetReader
from anabranch.store import Store
from tests.store.helpers import bodies_of, sound
from tests.store.writing.large_events.kit import body, extents


def test_in_a_file_each_large_event_has_a_row_group_of_its_own(tmp_path: Path) -> None:
    large = limits.EVENT_BYTES_MAX + 1
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        with store.writer("s/raw") as writer:
            for number in range(6):
                writer.write(body(number, large) if number in (2, 3) else b"x" * number)
        store.compact(force=True)
        (extent,) = extents(store)
        assert extent.key is not None
        file = ParquetReader(extent.key, store.blobs.get(extent.key))
        rows = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        assert rows == [2, 1, 1, 2]
        assert [len(each) for each in bodies_of(store, "s/raw")] == [0, 1, large, large, 4, 5]


@pytest.mark.slow
def test_an_event_of_100_mib_goes_in_and_out_within_its_bound_of_memory(tmp_path: Path) -> None:
    """In a process of its own, since Arrow tells only the most that one ever held."""
    script = f"from tests.store.writing.large_events.test_real_size import carry; carry({str(tmp_path / 'store')!r})"
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def carry(folder: str) -> None:
    """Written with one copy of it in memory and read from a map; a compaction has about four and a half, and leaves a file
    of which the reader has one."""
    size = 100 * limits.MIB
    data = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    pool = pa.default_memory_pool()

    @contextmanager
    def within(arrow: float, python: float) -> Iterator[None]:
        held, traced = pool.bytes_allocated(), tracemalloc.get_traced_memory()[0]
        most = max(pool.max_memory(), held + int(arrow * size))  # an earlier step may have had more
        tracemalloc.reset_peak()
        yield
        assert pool.max_memory() <= most, (pool.max_memory(), most)
        assert tracemalloc.get_traced_memory()[1] - traced <= python * size

    def sizes(store: Store) -> list[int]:
        with store.reader("s/raw") as reader:
            return [n for b in reader.batches() for n in pc.binary_length(b.column("payload")).to_pylist()]

    tracemalloc.start()
    with ab.connect(folder, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        with within(1.1, 0.3), store.writer("s/raw") as writer:
            writer.write(b"before")
            pointer = writer.write(memoryview(data.data), key="k").result()
            writer.write(b"after")
        for _ in range(2):
            with within(1.1, 0.3):
                assert sizes(store) == [6, size, 5]
            with within(1.1, 1.3):
                assert store.fetch(pointer).body == data.data
            with within(4.6, 0.3):
                store.compact(force=True)
        assert sound(store)
