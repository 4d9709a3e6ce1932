"""Jobs of many small steps, and two stores for those that move bytes from one to the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.store.transfer.jobs.kit import live, opened, small_ranges


@pytest.fixture
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of many small ranges and steps."""
    small_ranges(monkeypatch)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """A store with the stream `s/a`, and one with the scope `t`, each in a folder. Needs `many_ranges`."""
    with opened("folder", tmp_path / "a") as source, opened("folder", tmp_path / "b") as target:
        live(source)
        target.scopes.create("t")
        yield source, target
