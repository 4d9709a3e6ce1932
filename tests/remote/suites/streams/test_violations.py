"""Checks that send events to a stream of violations, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

_WRITES = "writes by `Store.write`, which needs the store's files (NotRemote)"

globals().update(
    suite(
        "tests.store.streams.lifecycle.test_violations",
        without={
            "test_a_write_divides_what_it_writes_in_one_transaction": _WRITES,
            "test_a_row_that_a_check_refuses_refuses_all_or_is_skipped": _WRITES,
            "test_a_flush_that_is_repeated_under_its_request_counts_once": _WRITES,
            "test_a_full_side_stream_lets_nothing_of_a_batch_in": _WRITES,
            "test_columns_that_are_added_later_are_left_out_of_violations": _WRITES,
        },
    )
)
