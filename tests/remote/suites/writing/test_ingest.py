"""Events of many kinds, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.writing.test_ingest",
        slow=(
            "test_a_batch_that_would_be_changed_is_refused_by_writers_and_transactions",
            "test_integers_of_another_unit_inside_lists_maps_and_structs_are_refused_too",
            "test_integers_that_look_like_another_unit_are_refused_unless_they_are_asked_for",
            "test_times_without_a_zone_are_of_the_zone_of_the_settings_everywhere",
        ),
    )
)
