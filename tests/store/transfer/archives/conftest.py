"""A store to archive, and another one to import into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.runtime.settings import Settings
from anabranch.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", settings=Settings(inline_bytes_max=2 * limits.KIB), create=True) as opened:
        opened.scopes.create("iot")
        yield opened


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "other", create=True) as opened:
        opened.scopes.create("old")
        yield opened
