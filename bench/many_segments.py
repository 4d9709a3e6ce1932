"""The cost of a commit per log that it touches: 16 MiB over 8, 64 and 1,000 open segments."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import anabranch as ab
from bench.measure import seconds
from bench.payloads import raw_table, rows_for
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.stores import fresh

SEGMENTS = (8, 64, 1_000)
TARGETS = {64: 1.3, 1_000: 2.0}


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Writes the same tables through one writer each, alternating between the numbers of segments."""
    count = setting.scaled(8, 2)
    rows = rows_for(setting.scaled(16, 1))
    tables = [raw_table(rows, seed) for seed in range(2)]
    stores = {number: fresh(setting.folder / str(number), segments=number) for number in SEGMENTS}
    writers = {number: store.writer("bench/events") for number, store in stores.items()}
    found: dict[int, list[float]] = {number: [] for number in SEGMENTS}
    for turn in range(setting.scaled(6, 2)):
        for number in SEGMENTS if turn % 2 else reversed(SEGMENTS):
            took = seconds(lambda n=number: _append(writers[n], tables, count))  # type: ignore[misc]
            if turn:  # the first round opens logs and fills caches
                found[number].append(took / (count * rows))
    for store in stores.values():
        store.close()
    base = SEGMENTS[0]
    results = [_line(base, found[base], None, None, ("µs per log are counted against this line",))]
    for number in SEGMENTS[1:]:
        ratios = [ours / other for ours, other in zip(found[number], found[base], strict=True)]
        extra = [(ours - other) * rows for ours, other in zip(found[number], found[base], strict=True)]
        per_log = 1e6 * median(extra) / (number - base)
        notes = (f"{per_log:.0f} µs for each further log of a commit of {rows:,} events",)
        results.append(_line(number, found[number], found[base], ratios, notes))
    return results


def _append(writer: ab.Writer, tables: Sequence[object], count: int) -> None:
    for number in range(count):
        writer.write_batch(tables[number % len(tables)])
    writer.flush()


def _line(
    number: int, ours: list[float], other: list[float] | None, ratios: list[float] | None, notes: tuple[str, ...]
) -> Result:
    return Result(
        "many_segments",
        f"commits of 16 MiB over {number:,} segments, cost per event",
        "µs",
        1e6 * median(ours),
        None if other is None else 1e6 * median(other),
        "" if other is None else f"over {SEGMENTS[0]} segments",
        None if ratios is None else median(ratios),
        None if ratios is None else (min(ratios), max(ratios)),
        Target(Bound.AT_MOST, TARGETS[number]) if number in TARGETS else None,
        notes,
    )


FIGURE = Benchmark("many_segments", "commits over many open segments", run)
