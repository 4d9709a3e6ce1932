"""Statements of a dashboard in InfluxQL, asked of a broker by HTTP, beside the same in DuckDB over a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import duckdb
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.model.columns import TIME_TYPE
from bench.measure import in_turn, seconds
from bench.result import Benchmark, BenchmarkSetting, Bound, Result, Target
from bench.serve_broker import ServedProcess

_BEGIN_S = 1_767_225_600
_HOSTS = 20
_SPAN = f"time >= {_BEGIN_S + 21_600}s AND time < {_BEGIN_S + 43_200}s"
_IN_SPAN = f"time >= to_timestamp({_BEGIN_S + 21_600}) AND time < to_timestamp({_BEGIN_S + 43_200})"
_BUCKET = "time_bucket(INTERVAL '10 minutes', time)"
_STATEMENTS = {
    f"SELECT mean(value) FROM cpu WHERE {_SPAN} GROUP BY time(10m), host": (
        f"SELECT host, {_BUCKET} AS bucket, avg(value) FROM events WHERE {_IN_SPAN} GROUP BY ALL ORDER BY ALL"
    ),
    f"SELECT max(value), min(value) FROM cpu WHERE {_SPAN} AND host =~ /h1/ GROUP BY time(10m)": (
        f"SELECT {_BUCKET} AS bucket, max(value), min(value) FROM events WHERE {_IN_SPAN} AND regexp_matches(host, 'h1') "
        "GROUP BY ALL ORDER BY ALL"
    ),
    "SELECT last(value) FROM cpu GROUP BY host": (
        "SELECT host, max_by(value, time), max(time) FROM events GROUP BY host ORDER BY host"
    ),
    f"SELECT max(mean) FROM (SELECT mean(value) FROM cpu GROUP BY host) WHERE {_SPAN} GROUP BY time(10m)": (
        f"SELECT bucket, max(mean) FROM (SELECT host, {_BUCKET} AS bucket, avg(value) AS mean FROM events WHERE {_IN_SPAN} "
        "GROUP BY ALL) GROUP BY bucket ORDER BY bucket"
    ),
}


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """A day of events of 20 hosts. Each round asks for all statements of one side, then of the other."""
    rows, rounds = setting.scaled(1_000_000, 50_000), setting.scaled(25, 5)
    folder, events = setting.folder / "influxql", _events(rows)
    with ab.connect(folder, create=True) as store:
        store.write("bench/cpu", events, create=True, time="time")
    file = setting.folder / "influxql.parquet"
    pq.write_table(events, file, compression="zstd")
    times: dict[str, tuple[list[float], list[float]]] = {}
    with (
        ServedProcess.broker(folder) as broker,
        httpx.Client(base_url=broker.addresses["http"], timeout=60) as client,
        duckdb.connect() as bare,
    ):
        bare.execute("SET TimeZone = 'UTC'")
        bare.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{file}')")
        sides: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            (statement, partial(_asked, client, statement), lambda sql=sql: bare.execute(sql).fetchall())  # type: ignore[misc]
            for statement, sql in _STATEMENTS.items()
        ]
        for statement, ours, other in sides:
            ours(), other()
            found = in_turn(rounds, partial(_ms, ours), partial(_ms, other))
            times[statement] = found.ours, found.other
    p50, bare_p50 = (median(each for side in times.values() for each in side[place]) for place in (0, 1))
    return [
        Result(
            "queries_influxql",
            "statements of a dashboard in InfluxQL, asked of a broker by HTTP, p50",
            "ms",
            p50,
            bare_p50,
            "the same in DuckDB, in this process over a Parquet file",
            p50 / bare_p50,
            None,
            Target(Bound.AT_MOST, 2),
            (
                f"{rows:,} events of {_HOSTS} hosts; each answer is JSON that a client parses",
                *(
                    f"{statement.split(' WHERE ')[0]} …: {median(ours):.1f} ms beside {median(other):.1f} ms"
                    for statement, (ours, other) in times.items()
                ),
            ),
        )
    ]


def _events(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    at = (_BEGIN_S + np.linspace(0, 86_400, rows)) * 1e6
    hosts = pa.array([f"h{number}" for number in range(_HOSTS)])
    return pa.table(
        {
            "time": pa.array(at.astype(np.int64), TIME_TYPE),
            "host": hosts.take(pa.array(random.integers(0, _HOSTS, rows))),
            "value": pa.array(random.random(rows)),
        }
    )


def _asked(client: httpx.Client, statement: str) -> object:
    answer = client.post("/query", params={"db": "bench", "epoch": "ms"}, data={"q": statement}).json()
    series = answer["results"][0]["series"]
    assert series, answer
    return series


def _ms(work: Callable[[], object]) -> float:
    return seconds(work) * 1e3


FIGURE = Benchmark("queries_influxql", "InfluxQL of a broker", run)
