from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.security.store_guard import StoreGuard
from anabranch.store import Store
from tests.store.helpers import store_at


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a folder, with the scope `iot` and the stream `iot/sensors`."""
    with store_at("sqlite", tmp_path) as made:
        made.scopes.create("iot")
        made.streams.create("iot/sensors")
        yield made


@pytest.fixture
def guard(store: Store) -> Iterator[StoreGuard]:
    made = StoreGuard(store)
    yield made
    made.close()
