"""Operations on whole streams, over a log of a million extents and over a log of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import median

from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName
from bench.algebra_stores import EVENTS, Bench, catalogs
from bench.measure import percentile, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

EXTENTS = 1_000_000
RATIO = Target(Bound.AT_MOST, 1.3)
LIMIT_MS = Target(Bound.AT_MOST, 5, absolute=True)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Measures each operation on both streams, alternating call by call; medians of the rounds' medians."""
    results: list[Result] = []
    extents = setting.scaled(EXTENTS, 10_000)
    with catalogs(setting) as both:
        for bench in both:
            setting.say(f"describing {extents:,} extents on {bench.kind}")
            results += _on(bench, extents, setting)
    return results


def _on(bench: Bench, extents: int, setting: BenchmarkSetting) -> Iterator[Result]:
    subjects = [_Subject(bench, "large", extents), _Subject(bench, "small", 1)]
    slowest = 0.0
    for name in subjects[0].operations:
        blocks: list[list[float]] = [[], []]
        for turn in range(setting.scaled(9, 2)):
            times: list[list[float]] = [[], []]
            for number in range(setting.scaled(25, 3)):
                for which in (0, 1) if number % 2 else (1, 0):
                    times[which].append(subjects[which].measure(name))
            if turn:  # the first round fills caches and prepares statements
                for block, taken in zip(blocks, times, strict=True):
                    block.append(1e3 * percentile(taken, 0.5))
        ratios = [ours / other for ours, other in zip(*blocks, strict=True)]
        slowest = max(slowest, median(blocks[0]))
        yield Result(
            "algebra_cost",
            f"{name}, a log of {extents:,} extents on {bench.kind}, p50",
            "ms",
            median(blocks[0]),
            median(blocks[1]),
            "of one extent",
            median(ratios),
            (min(ratios), max(ratios)),
            RATIO,
        )
    yield Result(
        "algebra_cost",
        f"the slowest of them on {bench.kind}, p50",
        "ms",
        slowest,
        target=LIMIT_MS,
        notes=(f"streams of one segment; {extents * EVENTS:,} events are described, their bodies do not exist",),
    )


class _Subject:
    """A stream whose log holds so many extents, and the operations on it. What an operation needs is prepared
    before, and what it made is removed afterwards: neither is measured."""

    def __init__(self, bench: Bench, name: str, extents: int) -> None:
        self._streams = bench.streams
        self._full = StreamName("a", name)
        self._new = count()
        bench.streams.create(self._full)
        bench.describe(str(self._full), extents)
        self._half = extents * EVENTS // 2
        self.operations: dict[str, Callable[[], tuple[Callable[[], object], Callable[[], object]]]] = {
            "copy": self._copy,
            "append": self._append,
            "stitch": self._stitch,
            "rename": self._rename,
            "move": self._move,
            "truncate": self._truncate,
        }

    def measure(self, operation: str) -> float:
        """Returns the seconds of one such operation."""
        work, undo = self.operations[operation]()
        taken = seconds(work)
        undo()
        return taken

    def _fresh(self) -> StreamName:
        return StreamName("a", f"{self._full.name}-{next(self._new)}")

    def _copy(self) -> tuple[Callable[[], object], Callable[[], object]]:
        target = self._fresh()
        return lambda: self._streams.copy(self._full, target), lambda: self._streams.delete(target)

    def _append(self) -> tuple[Callable[[], object], Callable[[], object]]:
        onto = self._fresh()
        self._streams.create(onto)
        return lambda: self._streams.append(self._full, onto), lambda: self._streams.delete(onto)

    def _stitch(self) -> tuple[Callable[[], object], Callable[[], object]]:
        into = self._fresh()
        work = lambda: self._streams.stitch([self._full, self._full], into=into)  # noqa: E731
        return work, lambda: self._streams.delete(into)

    def _rename(self) -> tuple[Callable[[], object], Callable[[], object]]:
        other = StreamName("a", f"{self._full.name}-other")
        return lambda: self._streams.rename(self._full, other), lambda: self._streams.rename(other, self._full)

    def _move(self) -> tuple[Callable[[], object], Callable[[], object]]:
        there = StreamName("b", self._full.name)
        return lambda: self._streams.move(self._full, "b"), lambda: self._streams.move(there, "a")

    def _truncate(self) -> tuple[Callable[[], object], Callable[[], object]]:
        target = self._fresh()
        self._streams.copy(self._full, target)
        view = self._streams.view(target)
        cut = StreamCut.of(view.info.id, dict.fromkeys(view.segments, self._half))
        return lambda: self._streams.truncate(target, cut), lambda: self._streams.delete(target)


FIGURE = Benchmark("algebra_cost", "streams like files, whatever was written", run, heavy=True)
