"""Conditions, fences, names, seals and deletions, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

PROGRESS = "looks into the catalog for a writer's progress, in whose place a broker's client has a producer"

globals().update(
    suite(
        "tests.store.writing.test_write_guards",
        without={
            "test_a_named_writer_goes_on_where_the_last_of_its_name_stopped": PROGRESS,
            "test_a_writer_whose_progress_was_forgotten_says_so_and_goes_on": PROGRESS,
            "test_a_writer_ahead_of_a_log_that_went_back_says_so_and_goes_on": PROGRESS,
        },
        slow=(
            "test_a_fenced_writer_does_not_come_back_by_a_scale",
            "test_a_raised_fence_refuses_writers_that_carry_a_lower_one",
            "test_a_writer_opened_before_the_schema_evolved_goes_on_with_its_own_until_one_does_not_fit",
            "test_after_a_failure_later_events_are_taken_in_order",
            "test_an_atomic_batch_sent_back_by_a_seal_leaves_no_hole_in_the_segments_that_stay_open",
            "test_of_contending_conditional_writers_one_wins_each_place",
            "test_writes_around_a_conditional_one_keep_their_order",
        ),
    )
)
