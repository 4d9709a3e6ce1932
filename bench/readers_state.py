"""Shared state: the updates per second of sixteen processes that all change one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import anabranch as ab
from anabranch.shared_state.synchronizer import StateSynchronizer
from bench import cluster_server as cluster
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

CLIENTS = 16
TARGET = Target(Bound.AT_LEAST, 500, absolute=True)


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Each process repeatedly adds one to a shared number; at the end the number is the sum."""
    clients = setting.scaled(CLIENTS, 3)
    seconds = setting.scaled(5, 1)
    local = [_local(setting, turn, clients, seconds) for turn in range(setting.scaled(3, 1))]
    with cluster.server(setting) as url:
        remote = []
        for turn in range(setting.scaled(3, 1)):
            with cluster.catalog_at(url, f"state_{turn}") as address:
                remote.append(_measure(address, "memory://", clients, seconds))
    return [
        Result(
            "readers_state",
            f"updates of one value by {clients} processes, {where}",
            "updates/s",
            median(found),
            target=TARGET,
            notes=("each made of the value before it; durable; in the end the value is the number of updates",),
        )
        for where, found in (("SQLite", local), ("PostgreSQL", remote))
    ]


def _local(setting: BenchmarkSetting, turn: int, clients: int, seconds: float) -> float:
    return _measure(str(setting.folder / f"state-{turn}"), None, clients, seconds)


def _measure(place: str, blobs: str | None, clients: int, seconds: float) -> float:
    with ab.connect(place, blobs=blobs, create=True) as store:
        store.scopes.create("bench")
        state = store.shared.synchronizer("bench/_count", initial=0)
        rate = cluster.together(clients, seconds, client, place, blobs)
        assert state.fetch() >= rate * seconds * 0.5, (state.state, rate)
    return rate


def client(number: int, place: str, blobs: str | None) -> Callable[[], int]:
    """One process: one update at each call."""
    store = ab.connect(place, blobs=blobs, create=False)
    state: StateSynchronizer[int] = store.shared.synchronizer("bench/_count")

    def update() -> int:
        state.update(lambda count: count + 1)
        return 1

    return update


FIGURE = Benchmark("readers_state", "shared state under contention", run, heavy=True)
