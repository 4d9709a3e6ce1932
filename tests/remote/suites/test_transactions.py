"""Transactions over a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.remote.suites.serving import served_store, suite
from tests.store.transactions.test_transactions import make

SUITE = "tests.store.transactions.test_transactions"
INSIDE = "looks into the catalog for the flushed batches"
CLOCK = {
    name: "moves the clock of an embedded store"
    for name, test in suite(SUITE).items()
    if "timed" in getattr(test, "__annotations__", ())
}
without = {
    "test_events_of_several_streams_appear_together_at_the_commit": INSIDE,
    "test_an_exception_in_the_block_aborts": INSIDE,
}
globals().update(suite(SUITE, without={**without, **CLOCK}))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with served_store(tmp_path / "river") as remote:
        yield remote.url, remote.url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with served_store(tmp_path / "river") as remote:
        make(remote)
        yield remote
