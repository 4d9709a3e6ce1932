"""Column types, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import brokers, suite

__all__ = ["brokers"]

globals().update(
    suite(
        "tests.store.conftest",
        "tests.store.test_column_types",
        slow=(
            "test_a_type_that_can_not_come_through_is_refused_when_a_stream_is_made_or_changed",
            "test_a_type_that_is_taken_comes_through_everything",
        ),
    )
)
