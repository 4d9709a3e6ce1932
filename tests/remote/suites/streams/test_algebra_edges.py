"""Edges of the algebra of streams, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.algebra.test_algebra_edges",
        slow=(
            "test_invalid_calls_are_refused_and_change_nothing",
            "test_operations_have_the_expected_result",
        ),
    )
)
