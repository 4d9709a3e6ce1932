"""Stores with the stream `s/raw`, to which an event of 64 KiB is large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.store.writing.large_events.kit import PLACES, opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened("memory", tmp_path) as made:
        yield made


@pytest.fixture(params=PLACES)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made
