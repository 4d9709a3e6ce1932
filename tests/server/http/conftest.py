"""What tests of the HTTP front end share: a store behind a real server on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import anabranch as ab
from anabranch.store import Store
from tests.server.http.serving import COLUMNS, Serving, serving


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a typed stream `iot/sensors` of two segments and a raw one, `iot/raw`."""
    with ab.connect(tmp_path / "store", create=True) as made:
        made.scopes.create("iot")
        made.streams.create("iot/sensors", schema=COLUMNS, key="sensor", time="at", scaling=2)
        made.streams.create("iot/raw")
        yield made


@pytest.fixture
def served(store: Store) -> Iterator[Serving]:
    with serving(store) as running:
        yield running


@pytest.fixture
def http(served: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client
