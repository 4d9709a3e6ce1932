"""What the embedded suites of reading begin with, and a broker in each test."""

from __future__ import annotations

from tests.remote.suites.serving import brokers, suite

__all__ = ["brokers"]

globals().update(suite("tests.store.conftest"))
