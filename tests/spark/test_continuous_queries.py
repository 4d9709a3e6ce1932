"""Continuous queries of InfluxQL, run by a host, write what those of a real InfluxDB write for the same points."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import anabranch as ab
from tests.server.http.influx.influxdb_server import influxdb
from tests.server.http.influx.test_against_influxdb import same
from tests.server.http.serving import serving
from tests.spark.hosts import PATIENCE_S, HostProcess
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(1200)]

CONTINUOUS = (
    """CREATE CONTINUOUS QUERY means ON db BEGIN
    SELECT mean(value), max(count) AS most, first(value), last(ok), percentile(value, 90), count(ok), sum(count) / count(value) AS r
    INTO means FROM cpu WHERE host != 'c' AND value > -40 GROUP BY time(2s), host END""",
    """CREATE CONTINUOUS QUERY fours ON db RESAMPLE EVERY 4s FOR 8s BEGIN
    SELECT mean(*) INTO other..:MEASUREMENT FROM cpu, mem GROUP BY time(2s, 1s), * END""",
    "CREATE CONTINUOUS QUERY filled ON db BEGIN SELECT sum(count), median(value) INTO filled FROM cpu GROUP BY time(2s) fill(7) END",
)
RESULTS = ("means", "filled", "other..cpu", "other..mem")
WINDOWS = 5


def lines(second: int) -> Iterator[str]:
    """Points of windows of two seconds from a time on. Most have all fields, and no two have the same time."""
    for step in range(WINDOWS * 8):
        at = (second * 1000 + step * 250) * 1_000_000
        fields = [f"value={step * 7 % 90 - 45}.5", f"count={step * 5 % 11}i", f"ok={'tf'[step % 3 == 0]}"]
        del fields[step % 7 : step % 7 + 1]
        yield f"cpu,host={'abcd'[step % 4]}{',region=eu' if step % 4 else ''} {','.join(fields)} {at}"
        yield f"mem,host=a used={step}i {at + 1_000_000}"


def ask(client: httpx.Client, url: str, statement: str) -> Any:
    answer = client.post(f"{url}/query", params={"db": "db", "epoch": "ms"}, data={"q": statement}).json()
    assert "error" not in answer and "error" not in answer["results"][0], (statement, answer)
    return answer["results"][0].get("series", [])


def write(client: httpx.Client, url: str, points: Iterator[str]) -> None:
    client.post(f"{url}/write", params={"db": "db"}, content="\n".join(points)).raise_for_status()


def windows_of(client: httpx.Client, url: str, result: str, begin: int, end: int) -> Any:
    where = f"time >= {begin}s AND time < {end}s"
    return ask(client, url, f"SELECT * FROM {result} WHERE {where} GROUP BY *")


def _written(client: httpx.Client, url: str, result: str, begin: int) -> bool:
    return bool(windows_of(client, url, result, begin, begin + 4))


def test_a_host_writes_what_the_continuous_queries_of_influxdb_write(tmp_path: Path) -> None:
    (tmp_path / "influxd").mkdir()
    with (
        ab.connect(tmp_path / "store", create=True) as store,
        serving(store) as broker,
        influxdb(tmp_path / "influxd") as influx,
        httpx.Client(timeout=60) as client,
    ):
        for url in (broker.url, influx):
            ask(client, url, "CREATE DATABASE db")
            ask(client, url, "CREATE DATABASE other")
            write(client, url, lines(1_700_000_000))  # before the first window, so not in the results
            for statement in CONTINUOUS:
                ask(client, url, statement)
        begin = (int(time.time()) // 4 + 1) * 4
        end = begin + WINDOWS * 2
        for url in (broker.url, influx):
            write(client, url, lines(begin))
        closing = (f"{name} value=0,count=0i,ok=t,used=0i,free=0 {(end + 60) * 10**9}" for name in ("cpu", "mem"))
        write(client, broker.url, closing)
        host = HostProcess(store, tmp_path / "host.log")
        try:
            for result in RESULTS:
                # InfluxDB writes a window when it is over by the clock, those of two statements up to 4 s later.
                until(lambda: time.time() > end + 6, PATIENCE_S)
                expected = windows_of(client, influx, result, begin, end - 2)
                assert expected and all(len(series["values"]) >= WINDOWS - 1 for series in expected), (result, expected)
                host.wait(partial(_written, client, broker.url, result, end - 2))
                found = windows_of(client, broker.url, result, begin, end - 2)
                assert same(expected, found), (result, expected, found)
                assert windows_of(client, broker.url, result, 0, begin - 4) == []
            for name in ("means", "fours", "filled"):
                ask(client, broker.url, f"DROP CONTINUOUS QUERY {name} ON db")
            host.wait(lambda: not store.queries.list())
            assert ask(client, broker.url, "SELECT mean FROM means LIMIT 1")
        finally:
            host.end()
