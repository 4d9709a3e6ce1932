"""Parameters of tests that take long: a plain run takes the first of them, `--all` takes every one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_is_slow(values: Iterable[Any], *, plain: int = 1) -> list[Any]:
    """The values, of which all but the first `plain` are for `--all`."""
    return [
        value if number < plain else pytest.param(*_several(value), marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def _several(value: Any) -> tuple[Any, ...]:
    """As `pytest.param` takes them: a tuple is a value for each of several names."""
    return value if isinstance(value, tuple) else (value,)
