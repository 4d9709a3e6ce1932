"""The stream of the stores here has four segments."""

from __future__ import annotations

import pytest


@pytest.fixture
def segments() -> int:
    return 4
