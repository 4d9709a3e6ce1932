"""The suites of the embedded store, run over a connection to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.remote.suites.serving import served_store


@pytest.fixture
def segments() -> int:
    return 2


@pytest.fixture
def store(tmp_path: Path, segments: int) -> Iterator[Store]:
    """A store by its broker, with the stream `s/a`."""
    with served_store(tmp_path / "river") as remote:
        remote.scopes.create("s")
        remote.streams.create("s/a", scaling=segments)
        yield remote


@pytest.fixture
def anywhere(store: Store) -> Store:
    return store
