"""One durable event at a time on an idle store: the latency for a caller that waits for each."""

from __future__ import annotations

from collections.abc import Sequence

import anabranch as ab
from anabranch.core.codec import encode
from bench.floors import bare_commits
from bench.measure import Rounds, in_turn, percentile, seconds
from bench.payloads import keys, payloads, raw_table
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """`writer.write(…).result()`, alternating with one INSERT of the same encoded bytes committed by SQLite alone."""
    count = setting.scaled(2_000, 50)
    content = encode(raw_table(1, 0).combine_chunks().to_batches()[0]).to_pybytes()
    commit, close = bare_commits(setting.folder / "floor.db", content)
    bodies, names = payloads(count + 50, 1), keys(count + 50, 1)
    with fresh(setting.folder / "store", segments=1) as store, store.writer("bench/events") as writer:
        events = zip(bodies, names, strict=True)

        def append() -> ab.EventPointer:
            body, key = next(events)
            return writer.write(body, key=key).result()

        for _ in range(50):
            append()
            commit()
        rounds = in_turn(count, lambda: 1e3 * seconds(append), lambda: 1e3 * seconds(commit))
    close()
    return [_line(rounds, 0.5, Target(Bound.AT_MOST, 2.0)), _line(rounds, 0.99, None)]


def _line(rounds: Rounds, part: float, target: Target | None) -> Result:
    ours, other = percentile(rounds.ours, part), percentile(rounds.other, part)
    return Result(
        "one_event",
        f"one durable event, idle store, p{100 * part:.0f}",
        "ms",
        ours,
        other,
        "one bare SQLite commit of the same bytes (WAL, synchronous=FULL, log restarted)",
        ours / other,
        None,
        target,
        (f"{len(rounds.ours):,} events, taking turns with the bare commits",),
    )


FIGURE = Benchmark("one_event", "one durable event on an idle store", run)
