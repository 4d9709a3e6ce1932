"""Notifications and listeners over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

INSIDE = "looks inside the embedded objects"

globals().update(
    suite(
        "tests.store.notifications.test_notifications",
        without={
            "test_reading_the_stream_enables_notifications": "reads the notifications' stream as events, and by history",
            "test_a_collection_loses_no_change": INSIDE,
        },
    )
)
globals().update(
    suite(
        "tests.store.notifications.test_listeners",
        without={
            "test_a_reader_whose_lease_expired_is_notified_as_left": INSIDE,
            "test_a_follower_that_is_closed_while_it_polls_ends": INSIDE,
        },
    )
)
globals().update(suite("tests.store.notifications.test_named_listeners"))
