"""Ephemeral streams, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.ephemeral.test_ephemeral",
        without={
            "test_upkeep_sweeps": "looks inside the embedded store",
            "test_a_suspended_holder_is_not_swept_by_its_own_process": "the holder is not in the process that sweeps",
            "test_a_block_ends_cleanly_if_the_catalog_is_unreachable": "makes the catalog of this process fail",
        },
        slow=(
            "test_a_clock_may_be_wrong_by_what_clocks_may_differ",
            "test_a_repeated_hold_request_returns_the_same_hold",
            "test_closing_the_store_releases_its_holds",
            "test_leaving_after_a_killed_holders_lease_expired_deletes_the_stream",
            "test_leaving_beside_a_killed_holder_leaves_the_stream_to_the_sweeper",
            "test_the_last_of_several_processes_deletes_the_stream",
            "test_the_sweeper_removes_streams_of_killed_holders",
        ),
    )
)
