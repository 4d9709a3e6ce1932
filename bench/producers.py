"""What a producer's numbers cost: appends of a producer beside the same appends of a plain writer, on both catalogs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa

import anabranch as ab
from bench import cluster_server as cluster
from bench.measure import in_turn, seconds
from bench.payloads import PAYLOAD_BYTES, raw_table
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

SEGMENTS = 8
TARGET = Target(Bound.AT_MOST, 1.1)
# Rows of an append, appends sent before their answers are awaited, rounds; and whether a plain writer joins the batches.
SHAPES = ((1, 1, 400, False), (1_000, 20, 15, True), (10_000, 8, 9, False))


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """`producer.append` alternating with `writer.write_batch`, each to a stream of its own, until all are durable."""
    results = []
    with ExitStack() as stack:
        stores = {"SQLite": ab.connect(setting.folder / "store", create=True)}
        address = stack.enter_context(cluster.catalog_at(stack.enter_context(cluster.server(setting)), "producers"))
        stores["PostgreSQL"] = ab.connect(address, blobs=setting.folder / "blobs", create=True)
        for catalog, store in stores.items():
            stack.enter_context(store)
            store.scopes.create("bench")
            for stream in ("bench/plain", "bench/numbered"):
                store.streams.create(stream, scaling=ab.Fixed(SEGMENTS))
            writer = stack.enter_context(store.writer("bench/plain"))
            producer = stack.enter_context(store.producer("bench/numbered", "p"))
            for rows, ahead, rounds, joined in SHAPES:
                table = raw_table(rows, 0)
                ours, plain = (partial(_send, each, table, ahead) for each in (producer.append, writer.write_batch))
                ours(), plain()
                found = in_turn(setting.scaled(rounds, 2), partial(_ms, ours), partial(_ms, plain))
                results.append(
                    Result(
                        "producers",
                        f"{ahead} appends of {rows:,} rows by a producer, {catalog}",
                        "ms",
                        median(found.ours),
                        median(found.other),
                        "the same by a plain writer",
                        found.ratio,
                        found.spread,
                        TARGET,
                        (
                            f"{PAYLOAD_BYTES} bytes of payload, {SEGMENTS} segments, durable",
                            *(("the plain writer joins these batches, which are not atomic then",) if joined else ()),
                        ),
                    )
                )
    return results


def _send(append: Callable[[pa.Table], Any], table: pa.Table, ahead: int) -> None:
    for ack in [append(table) for _ in range(ahead)]:
        ack.result()


def _ms(work: Callable[[], object]) -> float:
    return 1e3 * seconds(work)


FIGURE = Benchmark("producers", "appends of a producer", run)
