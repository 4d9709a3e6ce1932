"""A store with a stream of four segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.store.groups.kit import prepare
from tests.store.helpers import ANYWHERE, store_at


@pytest.fixture(params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        prepare(store)
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("memory", tmp_path) as store:
        prepare(store)
        yield store
