"""What several files of this folder begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.store.helpers import ANYWHERE, store_at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def segments() -> int:
    """How many the stream `s/a` of `store` and `anywhere` has."""
    return 2


@pytest.fixture
def store(tmp_path: Path, segments: int) -> Iterator[Store]:
    """A store in memory with the stream `s/a`, for files that make none of their own."""
    with store_at("memory", tmp_path) as made:
        made.streams.create("s/a", scaling=segments)
        yield made


@pytest.fixture(params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, segments: int) -> Iterator[Store]:
    """The same at each of ANYWHERE."""
    with store_at(request.param, tmp_path) as made:
        made.streams.create("s/a", scaling=segments)
        yield made
