"""Copies, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.algebra.test_copy",
        without={
            "test_a_reader_and_a_writer_of_the_source_continue_during_copies": "follows by a broker whose clock stands still",
        },
    )
)
