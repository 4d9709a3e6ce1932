"""Writers across splits and merges, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.test_rerouting",
        slow=(
            "test_what_a_seal_sent_back_goes_before_newer_events_of_its_key",
            "test_writers_and_readers_go_on_across_splits_and_merges",
        ),
    )
)
