"""What all tests share: a last line that says what ran on which backend, so that nothing is left out unseen."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine makes examples is no property of the store.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

_BACKENDS = (
    *("sqlite+folder+s3", "sqlite+s3+folder", "postgres+s3", "sqlite+s3"),
    *("postgres+folder", "postgres+memory", "sqlite+folder", "postgres", "sqlite", "memory"),
    *("folderands3", "s3", "folder"),
)


def _backend(node: str) -> str | None:
    """The backend that a test of the contracts or pairings names in its id."""
    if not node.startswith(("tests/contracts/", "tests/store/")):
        return None
    named = next((each for each in _BACKENDS if each in node.lower()), None)
    if named is None and node.startswith("tests/store/"):
        return f"{os.environ.get('ANABRANCH_TEST_CATALOG', 'sqlite')}+folder"
    return named


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what passed, per backend."""
    passed = Counter(_backend(report.nodeid) for report in terminalreporter.stats.get("passed", ()))
    counted = {name: number for name, number in passed.items() if name is not None}
    if counted:
        told = ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))
        terminalreporter.write_line(f"backends that tests passed on: {told}")
