"""Retention, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

INSIDE = "looks inside the embedded objects"

globals().update(
    suite(
        "tests.store.streams.retention.test_retention",
        without={
            "test_a_truncated_reader_continues_at_the_head_without_duplicates": "a client reads ahead, and hands out what it received before the truncation",
            "test_one_process_at_a_time_applies_policies_once_a_period": INSIDE,
            "test_a_concurrently_deleted_or_truncated_stream_is_skipped": INSIDE,
        },
        slow=("test_retention_removes_what_the_model_removes",),
    )
)
