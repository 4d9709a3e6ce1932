"""Helpers shared by the suites: a fresh adapter for each test, and expecting an error without a test framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Suite", "expecting", "run"]


class Suite(Protocol):
    """Drives a suite: `setup_method`, a `test_…` method, `teardown_method`, each test on a new instance."""

    def setup_method(self) -> None:
        """Prepare for one test."""
        ...

    def teardown_method(self) -> None:
        """Clean up after it."""
        ...


@contextmanager
def expecting(error: type[BaseException]) -> Iterator[None]:
    """Fails unless its body raises `error`."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected to be raised")


def run(suite: type[Suite]) -> list[str]:
    """Run all tests of a suite and return their names. The first failure is raised."""
    names = [name for name in dir(suite) if name.startswith("test_")]
    for name in names:
        case = suite()
        case.setup_method()
        try:
            getattr(case, name)()
        finally:
            case.teardown_method()
    return names
