"""Commits of a PostgreSQL catalog for sixteen clients: many logs per commit, on logs of their own and on shared
ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import median

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.model.append import Appended, BlobEntry, BlobLocation, Commit, Part, TimeBounds, Unit
from anabranch.model.append import Sequence as WriterSequence
from anabranch.model.ids import LogId, Micros, WriterId
from anabranch.runtime.ports import Runtime
from bench import cluster_server as cluster
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

CLIENTS = 16
LOGS = 1_600
LOGS_OF_A_COMMIT = 100
NOW = Micros(1_750_000_000_000_000)
TARGET = Target(Bound.AT_LEAST, 7_700, absolute=True)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Commits a blob with one part for each of 100 logs, the clients' own or drawn from all."""
    clients = setting.scaled(CLIENTS, 3)
    logs = setting.scaled(LOGS, 60)
    width = setting.scaled(LOGS_OF_A_COMMIT, 20)
    results = []
    with cluster.server(setting) as url:
        for shared, what in ((False, "each on logs of its own"), (True, "all on logs drawn from the same")):
            found = []
            for turn in range(setting.scaled(3, 1)):
                with cluster.catalog_at(url, f"commits_{int(shared)}_{turn}") as address:
                    cluster.load_streams(address, logs // 10, 10)
                    seconds = setting.scaled(10, 1)
                    found.append(cluster.together(clients, seconds, committer, address, clients, logs, width, shared))
                setting.say(f"{what}: {found[-1]:,.0f}")
            results.append(
                Result(
                    "cluster_commits",
                    f"log-commits by {clients} clients over {logs:,} logs, {what}",
                    "log-commits/s",
                    median(found),
                    target=TARGET,
                    notes=(f"{width} logs a commit, in one blob; synchronous_commit = on, fsync on",),
                )
            )
    return results


def committer(number: int, address: str, clients: int, logs: int, width: int, shared: bool) -> Callable[[], int]:
    """One client: each call commits to `width` logs."""
    catalog = PostgresCatalog(address, Runtime())
    chance = random.Random(number)
    every = cluster.log_ids(logs)
    mine = every[number * logs // clients : (number + 1) * logs // clients]
    writer = WriterId(f"client-{number}")
    following = dict.fromkeys(every, 0)
    count = 0

    def commit() -> int:
        nonlocal count
        count += 1
        blob = BlobEntry(f"commits/{number:04x}-{count:012x}.arrow", 100_000, NOW)
        chosen = chance.sample(every, width) if shared else chance.sample(mine, min(width, len(mine)))
        units = []
        for place, log in enumerate(chosen):
            sequence = WriterSequence(writer, following[log], 0)
            bounds = TimeBounds(NOW, NOW)
            units.append(
                Unit((Part(log, 10, 1, BlobLocation(1000 * place, 1000), 7, 1000, bounds, sequence, blob=blob.key),))
            )
            following[log] += 10
        answers = catalog.commit(Commit(tuple(units), NOW, (blob,)))
        assert all(isinstance(verdict, Appended) for unit in answers for verdict in unit), answers
        return len(chosen)

    return commit


def part_of(log: LogId, data: bytes, *, expected: int | None = None) -> Part:
    """Returns a part of one event, stored inline in the catalog's row."""
    return Part(log, 1, 1, BlobLocation(0, len(data)), 7, len(data), TimeBounds(NOW, NOW), expected=expected, data=data)


FIGURE = Benchmark("cluster_commits", "commits on PostgreSQL by many clients", run, heavy=True)
