"""Where real processes meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parameters import rest_is_slow
from tests.postgres_server import drop, fresh_url


@pytest.fixture(params=rest_is_slow(["sqlite", "postgres"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the catalog is; the blobs are in `blobs` beside it."""
    if request.param == "sqlite":
        yield str(tmp_path / "river")
        return
    url = fresh_url()
    yield url
    drop(url)
