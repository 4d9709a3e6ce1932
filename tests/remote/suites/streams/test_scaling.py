"""Scaling, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.scaling.test_scaling",
        slow=(
            "test_a_clock_that_was_set_back_restarts_the_samples",
            "test_segments_follow_the_load_and_keep_every_event",
            "test_the_windows_and_cooldowns_are_settings",
        ),
    )
)
