"""Columns that come later, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.test_evolving",
        without={
            "test_threads_that_share_a_writer_learn_together": "halts the embedded writer at each step",
        },
    )
)
