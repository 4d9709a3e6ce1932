"""Transactions that are committed together, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import brokers, suite

__all__ = ["brokers"]

globals().update(suite("tests.store.conftest", "tests.store.transactions.test_commit_together"))
