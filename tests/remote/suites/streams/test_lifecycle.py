"""Streams from creation to deletion, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.lifecycle.test_streams",
        slow=(
            "test_a_repeated_request_returns_its_first_result",
            "test_a_request_id_identifies_one_call_with_its_arguments",
            "test_an_invalid_call_raises_and_changes_nothing",
        ),
    )
)
