"""A store in memory, and one in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect("memory://" if request.param == "memory" else tmp_path / "river", create=True) as opened:
        opened.scopes.create("s")
        yield opened
