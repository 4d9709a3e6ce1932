"""Durable append of Arrow batches: the share of the disk's throughput left after routing, encoding and the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.floors import write_files
from bench.measure import in_turn, seconds
from bench.payloads import PAYLOAD_BYTES, raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import blob_files, fresh

SEGMENTS = 8
TABLE_MIB = 16


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Our side writes tables of 16 MiB as fast as `write_batch` takes them, then flushes. The floor writes the
    resulting blobs into files, one after the other."""
    count = setting.scaled(16, 3)
    rows = rows_for(setting.scaled(TABLE_MIB, 1))
    tables = [raw_table(rows, seed) for seed in range(min(count, 4))]
    store = fresh(setting.folder / "store", segments=SEGMENTS)
    files = iter(range(1_000))
    with store, store.writer("bench/events") as writer:

        def append() -> None:
            for number in range(count):
                writer.write_batch(tables[number % len(tables)])
            writer.flush()

        append()
        contents = [path.read_bytes() for path in blob_files(setting.folder / "store")]
        size = sum(map(len, contents))
        rounds = in_turn(
            setting.scaled(7, 2),
            lambda: size / 1e6 / seconds(append),
            lambda: size / 1e6 / seconds(lambda: write_files(setting.folder / f"files-{next(files)}", contents)),
        )
    ours = median(rounds.ours)
    events = ours * 1e6 / size * count * rows
    return [
        Result(
            "append_batches",
            f"durable append of Arrow batches, {SEGMENTS} segments",
            "MB/s",
            ours,
            median(rounds.other),
            "raw sequential write + fsync of the same blobs",
            rounds.ratio,
            rounds.spread,
            Target(Bound.AT_LEAST, 0.7),
            (
                f"{events / 1e6:.2f} M events/s of {PAYLOAD_BYTES} bytes of payload",
                f"{len(contents)} blobs of {size / len(contents) / 2**20:.0f} MiB a round, blob and catalog synced",
            ),
        )
    ]


FIGURE = Benchmark("append_batches", "durable append of Arrow batches", run)
