"""Watermarks, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import brokers, suite

__all__ = ["brokers"]

globals().update(
    suite(
        "tests.store.conftest",
        "tests.store.watermarks.test_watermarks",
        without={"test_few_streams_times_are_kept_in_memory": "looks inside the embedded store"},
        slow=(
            "test_a_moved_stream_keeps_its_watermark_after_reopening",
            "test_a_reader_has_a_time_window_at_each_position",
            "test_a_time_window_at_an_old_position",
            "test_no_older_event_is_after_the_watermarks_cut",
            "test_noted_times_are_deleted_with_the_stream",
        ),
    )
)
