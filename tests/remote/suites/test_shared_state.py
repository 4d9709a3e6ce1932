"""Revisioned streams and synchronizers over a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store import Store
from tests.remote.suites.serving import served_store, suite

FAULTS = "makes the catalog of this process fail"

globals().update(
    suite(
        "tests.store.shared_state.test_synchronizer",
        without={
            "test_concurrent_truncations_of_entries_succeed": "slows down the embedded store's truncation",
            "test_an_append_whose_answer_was_lost_counts_once": FAULTS,
            "test_an_update_under_the_lock_of_unknown_outcome_counts_once": FAULTS,
            "test_a_handle_with_a_forgotten_writer_continues": FAULTS,
        },
    )
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with served_store(tmp_path / "river") as remote:
        remote.scopes.create("s")
        yield remote


@pytest.fixture
def plain(store: Store) -> Store:
    return store
