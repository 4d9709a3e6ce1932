"""Places in a stream, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_places",
        slow=(
            "test_a_reader_starts_at_a_time_and_compaction_changes_nothing",
            "test_every_pointer_fetches_its_event",
            "test_reading_from_a_pointer_begins_with_its_event_and_holds_all_that_was_appended_later",
        ),
    )
)
