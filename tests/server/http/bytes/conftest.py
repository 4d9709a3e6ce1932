"""One store and server for all tests of uploads and downloads; the file of each test is deleted behind it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import anabranch as ab
from anabranch.store import Store
from tests.server.http.serving import COLUMNS, Serving, serving


@pytest.fixture(scope="package")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Serving]]:
    with ab.connect(tmp_path_factory.mktemp("bytes") / "store", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/sensors", schema=COLUMNS)
        with serving(store) as running:
            yield store, running


@pytest.fixture
def store(opened: tuple[Store, Serving]) -> Iterator[Store]:
    yield opened[0]
    if opened[0].streams.exists("iot/firmware"):
        opened[0].streams.delete("iot/firmware")


@pytest.fixture
def served(opened: tuple[Store, Serving]) -> Serving:
    return opened[1]


@pytest.fixture
def http(served: Serving, store: Store) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client
