"""Events out of the order of their times, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.log.test_misplaced",
        without={
            "test_a_cut_at_an_event_time_warns_of_earlier_events_after_it": "Python's warning is raised in the broker",
        },
        slow=("test_the_counts_are_those_of_a_list",),
    )
)
