"""The cost of a transaction's commit, compared with a plain append of the same events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

import anabranch as ab
from anabranch.store import Store
from bench.measure import in_turn, seconds
from bench.payloads import raw_table
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

SEGMENTS = 8
EVENTS = (80, 8_000)  # about 8 KiB, stored in a catalog row, and 800 KiB, stored as a blob


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Batches for all segments, appended and committed alternately."""
    with ab.connect(setting.folder / "store", create=True) as store:
        store.scopes.create("bench")
        for name in ("plain", "transaction"):
            store.streams.create(f"bench/{name}", scaling=SEGMENTS)
        return [_measured(store, setting, count) for count in EVENTS]


def _measured(store: Store, setting: BenchmarkSetting, count: int) -> Result:
    table = raw_table(count, 7)
    with store.writer("bench/plain") as writer:

        def append() -> float:
            return 1e3 * seconds(lambda: writer.write_batch(table).result())

        def commit() -> float:
            return 1e3 * _commit(store, table)

        for _ in range(3):
            append()
            commit()
        rounds = in_turn(setting.scaled(200, 5), commit, append)
    return Result(
        "readers_transactions",
        f"commit of a transaction of {count:,} events over {SEGMENTS} segments",
        "ms",
        sorted(rounds.ours)[len(rounds.ours) // 2],
        sorted(rounds.other)[len(rounds.other) // 2],
        "a plain append of the same batch",
        rounds.ratio,
        rounds.spread,
        Target(Bound.AT_MOST, 2.0),
        ("SQLite, synced; the commit stages, publishes and ends the transaction; its beginning is not counted",),
    )


def _commit(store: Store, table: pa.Table) -> float:
    txn = store.transaction()
    txn.writer("bench/transaction").write_batch(table)
    return seconds(txn.commit)


FIGURE = Benchmark("readers_transactions", "a transaction's commit", run)
