"""How writers end, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

INSIDE = "looks inside the embedded objects"

globals().update(
    suite(
        "tests.store.writing.test_write_ending",
        without={
            "test_flush_waits_for_events_that_another_thread_is_still_handing_over": INSIDE,
            "test_a_close_that_was_broken_off_is_gone_on_with_by_the_next": INSIDE,
            "test_a_writer_opened_while_the_store_closes_is_closed_too": INSIDE,
            "test_ctrl_c_between_the_columns_of_an_event_leaves_its_chunk_whole": INSIDE,
        },
        slow=(
            "test_a_store_closed_under_writers_and_readers_ends_them_all",
            "test_ctrl_c_in_the_leading_thread_loses_nothing_and_blocks_nobody",
            "test_flush_returns_once_everything_accepted_is_durable",
            "test_the_interpreters_exit_commits_what_was_accepted",
        ),
    )
)
