"""Latest events by key, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

LIMITS = "sets limits of the embedded store"

globals().update(
    suite(
        "tests.store.reading.conftest",
        "tests.store.reading.test_latest",
        without={
            "test_whatever_happens_to_a_stream_its_table_is_what_reading_it_gives": "replaces by tables (NotRemote)",
            "test_what_has_no_table_is_said_in_one_line": LIMITS,
        },
    )
)
