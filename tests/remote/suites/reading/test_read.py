"""Reading, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

INSIDE = "looks inside the embedded objects"

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_read",
        without={
            "test_closing_a_reader_waits_for_a_pull_of_arrows_c_interface": INSIDE,
            "test_opened_files_are_kept_up_to_their_number_and_their_bytes": INSIDE,
            "test_an_iteration_that_is_forgotten_may_end_where_the_files_are_being_looked_at": INSIDE,
        },
        slow=(
            "test_columns_are_chosen_and_ordered",
            "test_events_and_batches_hold_what_was_written",
            "test_events_of_older_schemas_have_nulls_in_new_columns",
            "test_many_small_appends_come_as_few_batches",
            "test_order_of_every_key_holds_across_splits_and_merges",
            "test_segments_take_turns",
            "test_two_readers_that_meet_at_a_cut_read_everything_once",
        ),
    )
)
