"""Retention by consumption, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.retention.test_consumption",
        without={
            "test_nothing_before_a_pending_checkpoint_is_removed": "looks inside the embedded reader",
        },
        slow=(
            "test_truncation_by_groups_stops_at_the_limit_and_the_slowest_group",
            "test_a_group_that_is_reset_during_retention_loses_nothing",
            "test_an_archive_does_not_take_subscribers_along",
            "test_a_copy_is_kept_whatever_the_groups_of_its_source_have_read",
            "test_a_bound_of_bytes_passes_a_group_as_well",
            "test_a_group_may_release_what_lies_before_its_last_checkpoint_alone",
            "test_a_group_of_other_streams_is_refused_or_keeps_nothing",
            "test_a_group_that_lags_beyond_the_bound_loses_events_and_is_reported",
            "test_a_group_that_was_reset_keeps_what_it_reads_again",
            "test_a_scaled_stream_stops_at_the_slowest_on_either_side_of_the_scale",
            "test_events_are_removed_once_all_groups_have_read_them",
            "test_retention_ignores_a_deleted_group_until_it_is_created_again",
        ),
    )
)
