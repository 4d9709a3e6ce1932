"""Copying a stream to another store, compared with copying the same files and syncing them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import count
from statistics import median

import pyarrow as pa

import anabranch as ab
from bench import stores
from bench.floors import write_files
from bench.measure import in_turn, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

BATCHES = 32
BATCH_BYTES = 16 * 1024 * 1024
BYTES = 100
TARGET = Target(Bound.AT_LEAST, 0.7)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Both copy from the page cache onto the measured disk; each copy is removed before the next is made."""
    rows = BATCH_BYTES // (BYTES + 24)
    batch = pa.table({"key": [f"key-{n % 97}" for n in range(rows)], "payload": [b"x" * BYTES] * rows})
    home = setting.folder / "river"
    with stores.fresh(home, segments=8) as source:
        with source.writer("bench/events") as writer:
            for _ in range(setting.scaled(BATCHES, 2)):
                writer.write_batch(batch).result()
        files = stores.blob_files(home)
        size = sum(file.stat().st_size for file in files)
        number = count()

        def ours() -> float:
            place = setting.folder / f"copy-{next(number)}"
            with ab.connect(place, create=True) as target:
                target.scopes.create("bench")
                taken = seconds(lambda: source.streams.copy("bench/events", "bench/events", to=target))
            shutil.rmtree(place)
            return size / taken / 1e6

        def other() -> float:
            place = setting.folder / f"files-{next(number)}"
            taken = seconds(lambda: write_files(place, [file.read_bytes() for file in files]))
            shutil.rmtree(place)
            return size / taken / 1e6

        ours(), other()
        rounds = in_turn(setting.scaled(7, 1), ours, other)
    return [
        Result(
            "algebra_move",
            "a stream copied to another store, both in folders",
            "MB/s",
            median(rounds.ours),
            median(rounds.other),
            "copying the same files, each with an fsync",
            rounds.ratio,
            rounds.spread,
            TARGET,
            (f"{size / 1e6:,.0f} MB in {len(files)} blobs; files in the page cache, checksums verified once before",),
        )
    ]


FIGURE = Benchmark("algebra_move", "a copy across stores", run)
