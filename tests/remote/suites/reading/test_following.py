"""Following a stream, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_following",
        slow=("test_a_follower_in_another_process_is_aware_of_each_commit",),
    )
)
