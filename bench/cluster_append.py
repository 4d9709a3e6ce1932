"""One durable event at a time on PostgreSQL, compared with one bare INSERT that commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import psycopg

import anabranch as ab
from bench import cluster_server as cluster
from bench.measure import percentile, seconds
from bench.payloads import PAYLOAD_BYTES, payloads
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target

PARTS = ((0.5, None), (0.99, Target(Bound.AT_MOST, 2.0)))


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """`writer.write(…).result()` and an INSERT of as many bytes as the event's message has, alternating block by
    block."""
    count = setting.scaled(1_000, 50)
    (body,) = payloads(1, 1)
    with (
        cluster.server(setting) as url,
        cluster.catalog_at(url, "one_event") as address,
        ab.connect(address, blobs=setting.folder / "blobs", create=True) as store,
    ):
        store.scopes.create("bench")
        store.streams.create("bench/events")
        with store.writer("bench/events") as writer:
            writer.write(body, key="device").result()
            ((size,),) = cluster.run(address, "select length(data) from extents limit 1")
            cluster.run(address, "create table bare (id bigserial primary key, data bytea not null)")
            base, _, schema = address.rpartition("schema=")
            with psycopg.connect(base.rstrip("?&"), autocommit=True, prepare_threshold=0) as database:
                insert, data = f"insert into {schema}.bare (data) values (%b)".encode(), bytes(size)
                ours = lambda: _times(count, lambda: writer.write(body, key="device").result())  # noqa: E731
                other = lambda: _times(count, lambda: database.execute(insert, (data,)))  # noqa: E731
                ours(), other()
                results = []
                blocks: list[tuple[list[float], list[float]]] = []
                for turn in range(setting.scaled(5, 1)):
                    pair = (ours(), other()) if turn % 2 else (other(), ours())[::-1]
                    blocks.append(pair)
    for part, target in PARTS:
        mine = [1e6 * percentile(block, part) for block, _ in blocks]
        theirs = [1e6 * percentile(block, part) for _, block in blocks]
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        results.append(
            Result(
                "cluster_append",
                f"one durable event on PostgreSQL, p{100 * part:.0f}",
                "µs",
                median(mine),
                median(theirs),
                "one bare INSERT that commits",
                median(ratios),
                (min(ratios), max(ratios)),
                target,
                (
                    f"{PAYLOAD_BYTES} bytes of payload, {size} of message inlined in the catalog; synchronous_commit = on",
                ),
            )
        )
    return results


def _times(count: int, call: Callable[[], object]) -> list[float]:
    return [seconds(call) for _ in range(count)]


FIGURE = Benchmark("cluster_append", "one durable event on PostgreSQL", run)
