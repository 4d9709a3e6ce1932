"""Changes with a request id, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.test_requests",
        slow=(
            "test_a_repeated_change_returns_its_first_result",
            "test_a_stream_id_is_stable_across_renames",
            "test_request_ids_of_later_transactions_can_not_be_passed",
        ),
    )
)
