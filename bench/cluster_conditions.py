"""Conditional appends on PostgreSQL: sixteen clients, each of which commits the requests of all its callers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.model.append import Appended, Commit, Unit
from anabranch.runtime.ports import Runtime
from bench import cluster_server as cluster
from bench.cluster_commits import CLIENTS, NOW, part_of
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

LOGS = 1_000
TARGET = Target(Bound.AT_LEAST, 14_000, absolute=True)
_DATA = bytes(100)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each client appends one event of 100 bytes to each of its logs, on condition of the length that it knows."""
    clients = setting.scaled(CLIENTS, 3)
    logs = setting.scaled(LOGS, 60)
    found = []
    with cluster.server(setting) as url:
        for turn in range(setting.scaled(3, 1)):
            with cluster.catalog_at(url, f"conditions_{turn}") as address:
                cluster.load_streams(address, logs // 10, 10)
                found.append(cluster.together(clients, setting.scaled(10, 1), client, address, clients, logs))
            setting.say(f"{found[-1]:,.0f}")
    return [
        Result(
            "cluster_conditions",
            f"conditional appends by {clients} clients over {logs:,} logs, group commit",
            "appends/s",
            median(found),
            target=TARGET,
            notes=("100 bytes inlined in the catalog; every condition held; synchronous_commit = on, fsync on",),
        )
    ]


def client(number: int, address: str, clients: int, logs: int) -> Callable[[], int]:
    """One client: each call makes a conditional append to each of its logs, in one commit."""
    catalog = PostgresCatalog(address, Runtime())
    mine = cluster.log_ids(logs)[number * logs // clients : (number + 1) * logs // clients]
    length = 0

    def append() -> int:
        nonlocal length
        units = tuple(Unit((part_of(log, _DATA, expected=length),)) for log in mine)
        answers = catalog.commit(Commit(units, NOW))
        assert all(isinstance(verdict, Appended) for unit in answers for verdict in unit), answers
        length += 1
        return len(mine)

    return append


FIGURE = Benchmark("cluster_conditions", "conditional appends on PostgreSQL", run, heavy=True)
