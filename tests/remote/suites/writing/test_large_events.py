"""Large events, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.large_events.conftest",
        "tests.store.writing.large_events.test_large_events",
        without={
            "test_staged_large_events_are_published_once_across_a_scale": "stages events, which needs the store's files",
        },
        slow=("test_events_of_many_threads_keep_the_order_of_each",),
    )
)
