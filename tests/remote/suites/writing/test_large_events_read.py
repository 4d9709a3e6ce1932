"""Reading large events, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.large_events.conftest",
        "tests.store.writing.large_events.test_reading",
        without={
            "test_batches_are_bounded_by_bytes_everywhere": "a connection has a bound of its own for the pieces of a batch",
            "test_a_rebuild_says_of_a_large_event_that_it_may_not_be_committed": "finds the writer's name in the files, in whose place a broker's client has a producer",
        },
        slow=(
            "test_archives_imports_copies_and_digests_hold_large_events",
            "test_sizes_distances_and_retention_count_large_events_whole",
        ),
    )
)
