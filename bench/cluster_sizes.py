"""A large catalog on PostgreSQL: its operations compared with those of a small one, and the cost of planning a read
of a long log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from statistics import median

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.model.append import Commit, Unit
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from bench import cluster_server as cluster
from bench.cluster_commits import NOW, part_of
from bench.features import streams_of
from bench.measure import percentile, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

SEGMENTS = 10
STREAMS = (1_000, 100_000)
BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
PLANNED = 100
TARGET = Target(Bound.AT_MOST, 1.5)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Runs the same operations on streams drawn from a small and from a large catalog, alternating; then plans the
    read of a hundred extents in the middle of logs of several lengths."""
    with cluster.server(setting) as url:
        return [*_sizes(setting, url), *_plans(setting, url)]


def _sizes(setting: BenchmarkSetting, url: str) -> Iterator[Result]:
    small, large = STREAMS[0] // setting.scaled(1, 10), STREAMS[1] // setting.scaled(1, 100)
    with ExitStack() as end:
        both = []
        for streams in (large, small):
            address = end.enter_context(cluster.catalog_at(url, f"streams_{streams}"))
            setting.say(f"loading {streams:,} streams")
            cluster.load_streams(address, streams, SEGMENTS)
            both.append(_Catalog(end.enter_context(_opened(address)), streams))
        for name in both[0].operations:
            blocks: list[list[float]] = [[], []]
            for turn in range(setting.scaled(6, 2)):
                for which in (0, 1) if turn % 2 else (1, 0):
                    work = both[which].operations[name]
                    times = [seconds(work) for _ in range(setting.scaled(200, 10))]
                    if turn:  # the first round fills caches and prepares statements
                        blocks[which].append(1e3 * percentile(times, 0.5))
            ratios = [ours / other for ours, other in zip(*blocks, strict=True)]
            yield Result(
                "cluster_sizes",
                f"{name}, among {large:,} streams with {large * SEGMENTS:,} segments",
                "ms",
                median(blocks[0]),
                median(blocks[1]),
                f"among {small:,} streams",
                median(ratios),
                (min(ratios), max(ratios)),
                TARGET,
            )


class _Catalog:
    """Operations on streams that are drawn again for each call."""

    def __init__(self, catalog: PostgresCatalog, streams: int) -> None:
        self._catalog = catalog
        self._count = streams
        self._chance = random.Random(7)
        self._manager = streams_of(catalog)
        self._new = count(streams)
        self.operations: dict[str, Callable[[], object]] = {
            "find a stream by name": self._find,
            "view of a stream": self._view,
            "append to one log": self._append,
            "list 100 streams": self._list,
            "create a stream": self._create,
            "scale a stream": self._scale,
        }

    def _name(self) -> StreamName:
        return StreamName("bench", str(self._chance.randrange(self._count)))

    def _find(self) -> None:
        with self._catalog.reading() as txn:
            assert txn.stream(self._name()) is not None

    def _view(self) -> None:
        with self._catalog.reading() as txn:
            assert txn.view(StreamId(self._chance.randrange(self._count))) is not None

    def _append(self) -> None:
        log = LogId(1 + self._chance.randrange(self._count * SEGMENTS))
        self._catalog.commit(Commit((Unit((part_of(log, bytes(100)),)),), NOW))

    def _list(self) -> None:
        with self._catalog.reading() as txn:
            txn.streams("bench", after=self._name(), limit=100)

    def _create(self) -> None:
        self._manager.create(StreamName("bench", f"new-{next(self._new)}"), scaling=SEGMENTS)

    def _scale(self) -> None:
        self._manager.scale(self._name(), self._chance.choice((8, 9, 11, 12)))


def _plans(setting: BenchmarkSetting, url: str) -> Iterator[Result]:
    backlogs = BACKLOGS[: setting.scaled(len(BACKLOGS), 2)]
    with cluster.catalog_at(url, "plans") as address:
        cluster.load_streams(address, 1, len(backlogs))
        for log, backlog in enumerate(backlogs, 1):
            setting.say(f"loading a log of {backlog:,} extents")
            cluster.run(
                address,
                f"""insert into extents select {log}, n * 10, n * 10 + 10, null, 'arrow', 0, 100, 0, 1, 7, n, n, n, n, n,
                    n * 100, '\\x00' from generate_series(0, {backlog} - 1) as n""",
                f"update logs set length = {backlog} * 10 where id = {log}",
            )
        cluster.run(address, "analyze extents")
        with _opened(address) as catalog:
            times: dict[int, list[float]] = {backlog: [] for backlog in backlogs}
            for turn in range(setting.scaled(6, 2)):
                for log, backlog in enumerate(backlogs, 1):
                    plan = partial(_plan, catalog, LogId(log), backlog)
                    taken = [seconds(plan) for _ in range(setting.scaled(100, 5))]
                    if turn:
                        times[backlog].append(1e3 * percentile(taken, 0.5))
    base = backlogs[0]
    for backlog in backlogs:
        ratios = [ours / other for ours, other in zip(times[backlog], times[base], strict=True)]
        yield Result(
            "cluster_sizes",
            f"plan of {PLANNED} extents in the middle of {backlog:,}",
            "ms",
            median(times[backlog]),
            None if backlog == base else median(times[base]),
            "" if backlog == base else f"of {base:,}",
            None if backlog == base else median(ratios),
            None if backlog == base else (min(ratios), max(ratios)),
            None if backlog == base else TARGET,
        )


def _plan(catalog: PostgresCatalog, log: LogId, backlog: int) -> None:
    start = backlog * 5
    with catalog.reading() as txn:
        assert len(txn.extents(log, start, start + 10 * PLANNED, 10 * PLANNED)) == PLANNED


@contextmanager
def _opened(address: str) -> Iterator[PostgresCatalog]:
    catalog = PostgresCatalog(address, Runtime())
    try:
        yield catalog
    finally:
        catalog.close()


FIGURE = Benchmark("cluster_sizes", "a large catalog on PostgreSQL", run, heavy=True)
