"""Writing, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.test_write",
        without={
            "test_an_event_over_the_limit_is_refused_and_one_at_it_is_not": "stages events too; see tests/remote/test_writer.py",
        },
        slow=(
            "test_a_batch_with_a_mistake_is_refused_whole_and_at_once",
            "test_a_mistake_is_one_clear_error_and_disturbs_no_other_event",
            "test_a_stream_of_many_segments_takes_one_batch_over_all_of_them",
            "test_a_writer_that_is_never_flushed_does_not_remember_what_is_done",
            "test_an_atomic_batch_over_all_segments_appears_at_once",
            "test_an_event_is_at_its_pointer_and_can_be_fetched",
            "test_back_pressure_bounds_what_is_pending",
            "test_batches_of_every_library_are_written",
            "test_the_order_of_each_key_is_kept_by_many_threads_with_many_commits_on_their_way",
        ),
    )
)
