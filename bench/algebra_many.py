"""Many copies: of a scope of a thousand streams at once, and the cost of each of a thousand copies of one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median

from bench.algebra_stores import Bench, catalogs
from bench.features import scopes_of
from bench.measure import seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

STREAMS = 1_000
COPIES = 1_000
SEGMENTS = 4
LIMIT_S = Target(Bound.AT_MOST, 2, absolute=True)
CONSTANT = Target(Bound.AT_MOST, 1.05)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Measures both on a catalog of each kind."""
    results: list[Result] = []
    with catalogs(setting) as both:
        for bench in both:
            results += [_scope(bench, setting), *_copies(bench, setting)]
    return results


def _scope(bench: Bench, setting: BenchmarkSetting) -> Result:
    count = setting.scaled(STREAMS, 100)
    setting.say(f"making {count:,} streams on {bench.kind}")
    for number in range(count):
        bench.streams.create(f"a/{number}")
    taken = [seconds(partial(scopes_of(bench.catalog).copy, "a", f"copy-{n}")) for n in range(setting.scaled(5, 1))]
    return Result(
        "algebra_many",
        f"copy_scope of {count:,} streams on {bench.kind}",
        "s",
        median(taken),
        target=LIMIT_S,
        notes=(f"of one segment each; {1e3 * median(taken) / count:.2f} ms a stream",),
    )


def _copies(bench: Bench, setting: BenchmarkSetting) -> Iterator[Result]:
    count = setting.scaled(COPIES, 100)
    setting.say(f"copying one stream {count:,} times on {bench.kind}")
    bench.streams.create("b/one", scaling=SEGMENTS)
    measures: list[tuple[str, str, Callable[[], int], Target | None]]
    measures = [("rows", "rows", bench.rows, CONSTANT), ("bytes", "bytes of rows", bench.size, CONSTANT)]
    if bench.pages is not None:
        measures.append(("bytes", "bytes of pages", bench.pages, None))
    seen = [[measure() for *_, measure, _ in measures]]
    times = []
    for number in range(count):
        times.append(seconds(partial(bench.streams.copy, "b/one", f"b/copy-{number}")))
        if number + 1 in (count // 2, count):
            seen.append([measure() for *_, measure, _ in measures])
    for place, (unit, what, _, target) in enumerate(measures):
        first, second = ((after[place] - before[place]) / (count / 2) for before, after in pairwise(seen))
        yield Result(
            "algebra_many",
            f"{what} in the catalog for each of {count:,} live copies of one stream, on {bench.kind}",
            unit,
            second,
            first,
            f"each of the first {count // 2:,}",
            second / first,
            target=target,
            notes=(f"a stream of {SEGMENTS} segments; the request's answer and the change's row among them",),
        )
    half = count // 2
    yield Result(
        "algebra_many",
        f"one copy among {half:,} to {count:,} others of the same stream, on {bench.kind}",
        "ms",
        1e3 * median(times[half:]),
        1e3 * median(times[:half]),
        f"among the first {half:,}",
        median(times[half:]) / median(times[:half]),
    )


FIGURE = Benchmark("algebra_many", "many copies", run, heavy=True)
