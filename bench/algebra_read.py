"""Reading a copy of a copy of a copy, compared with reading the original."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

import anabranch as ab
from bench.measure import in_turn, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

GENERATIONS = 100
EVENTS = 4_000_000
BYTES = 100
TARGET = Target(Bound.AT_LEAST, 0.95)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Measures a stream of a hundred batches; a copy of it through a hundred generations; and a stream of the same
    events of which each generation appended one batch to a copy of the one before."""
    events = setting.scaled(EVENTS, 100_000)
    with ab.connect(setting.folder / "river", create=True) as store:
        store.scopes.create("bench")
        batch = _batch(events // GENERATIONS)
        _write(store, "bench/original", [batch] * GENERATIONS)
        for generation in range(GENERATIONS):
            source = "bench/original" if generation == 0 else f"bench/copy-{generation - 1}"
            store.streams.copy(source, f"bench/copy-{generation}")
        store.streams.create("bench/grown-0")
        _write(store, "bench/grown-0", [batch])
        for generation in range(1, GENERATIONS):
            store.streams.copy(f"bench/grown-{generation - 1}", f"bench/grown-{generation}")
            _write(store, f"bench/grown-{generation}", [batch])
        setting.say(f"reading {events:,} events")
        return [
            _beside(store, f"bench/copy-{GENERATIONS - 1}", "a copy of the 100th generation", events, setting),
            _beside(
                store,
                f"bench/grown-{GENERATIONS - 1}",
                "the same where each generation added a hundredth, so that it lies in 100 logs",
                events,
                setting,
            ),
        ]


def _beside(store: ab.Store, name: str, what: str, events: int, setting: BenchmarkSetting) -> Result:
    ours, other = (partial(_speed, store, each, events) for each in (name, "bench/original"))
    ours(), other()  # so that checksums, which are verified once, are not measured
    rounds = in_turn(setting.scaled(15, 3), ours, other)
    return Result(
        "algebra_read",
        f"reading {what}",
        "M events/s",
        median(rounds.ours),
        median(rounds.other),
        "reading the original",
        rounds.ratio,
        rounds.spread,
        TARGET,
        (
            f"{events:,} events of {BYTES} bytes as Arrow batches, each payload looked at for its length; files in the page cache",
        ),
    )


def _speed(store: ab.Store, name: str, events: int) -> float:
    taken = seconds(partial(_read, store, name, events))
    return events / taken / 1e6


def _read(store: ab.Store, name: str, events: int) -> None:
    with store.reader(name) as reader:
        seen = 0
        for batch in reader.batches():
            seen += batch.num_rows
            pc.sum(pc.binary_length(batch.column("payload")))
        assert seen == events


def _batch(rows: int) -> pa.Table:
    return pa.table({"key": [f"key-{n % 97}" for n in range(rows)], "payload": [b"x" * BYTES] * rows})


def _write(store: ab.Store, name: str, batches: Sequence[pa.Table]) -> None:
    if not store.streams.exists(name):
        store.streams.create(name)
    with store.writer(name) as writer:
        for batch in batches:
            writer.write_batch(batch).result()


FIGURE = Benchmark("algebra_read", "reading copies of copies", run)
