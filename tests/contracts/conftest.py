"""A database for the files that are about PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres_server import drop, fresh_url


@pytest.fixture
def url() -> Iterator[str]:
    made = fresh_url()
    yield made
    drop(made)
