"""What tests of Prometheus's API share: a broker, whose scope `db` holds the samples of `data`, and a real Prometheus with
the same."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import anabranch as ab
from tests.server.http.prometheus.data import lines, openmetrics
from tests.server.http.prometheus.prometheus_server import prometheus
from tests.server.http.serving import Serving, serving


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, client: httpx.Client) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("promql")
    with ab.connect(folder / "store", create=True) as store, serving(store) as running:
        client.post(f"{running.url}/query", data={"q": "CREATE DATABASE db"}).raise_for_status()
        written = {"db": "db", "precision": "ms"}
        client.post(f"{running.url}/write", params=written, content="\n".join(lines())).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url
