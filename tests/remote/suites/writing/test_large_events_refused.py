"""Large events that are refused, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.large_events.conftest",
        "tests.store.writing.large_events.test_refused",
        without={
            "test_beyond_the_limit_one_error_names_both_sizes": "stages events too; see tests/remote/test_writer.py",
        },
        slow=("test_large_events_in_flight_at_a_scale_are_routed_anew_in_order",),
    )
)
