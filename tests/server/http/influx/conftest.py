"""What tests of InfluxDB's API share: a broker, whose scope `db` holds the points of `data`."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import anabranch as ab
from tests.server.http.influx.data import lines
from tests.server.http.serving import Serving, serving


def fill(client: httpx.Client, url: str) -> None:
    """Create the database `db`, and write the points into it."""
    client.post(f"{url}/query", data={"q": "CREATE DATABASE db"}).raise_for_status()
    client.post(f"{url}/write", params={"db": "db"}, content="\n".join(lines())).raise_for_status()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, client: httpx.Client) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("influx")
    with ab.connect(folder / "store", create=True) as store, serving(store) as running:
        fill(client, running.url)
        yield running
