"""Events out of the order of their times, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.log.test_misplaced",
        slow=("test_the_counts_are_those_of_a_list",),
    )
)
