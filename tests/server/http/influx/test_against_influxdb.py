"""Statements of InfluxQL give what a real InfluxDB gives for the same points: names, tags, columns, times, values, order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.http.influx.conftest import fill
from tests.server.http.influx.influxdb_server import influxdb
from tests.server.http.serving import Serving

STATEMENTS = [
    line
    for line in (Path(__file__).parent / "statements.influxql").read_text().splitlines()
    if line and not line.startswith("--")
]


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory, client: httpx.Client) -> Iterator[str]:
    with influxdb(tmp_path_factory.mktemp("influxd")) as url:
        fill(client, url)
        yield url


def answer(client: httpx.Client, url: str, statement: str, **parameters: str) -> Any:
    return client.get(f"{url}/query", params={"db": "db", "epoch": "ns", "q": statement, **parameters}).json()


def same(expected: Any, found: Any) -> bool:
    """Whether two answers are equal, but for the last digits of sums, and for the text of errors."""
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return abs(expected - found) <= 1e-9 * max(abs(expected), abs(found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            key == "error" or same(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    return bool(expected == found)


def test_statements_give_what_influxdb_gives(client: httpx.Client, broker: Serving, influx: str) -> None:
    different = []
    for statement in STATEMENTS:
        expected, found = answer(client, influx, statement), answer(client, broker.url, statement)
        if not same(expected, found):
            different.append(f"{statement}\n  expected {expected!s:.600}\n  found    {found!s:.600}")
    assert not different, "\n".join(different)
    assert len(STATEMENTS) > 200
