"""Checks on the events of a stream, over a connection."""

from __future__ import annotations

from tests.remote.suites.serving import suite

globals().update(
    suite(
        "tests.store.streams.lifecycle.test_checks",
        without={
            "test_what_a_producer_appends_is_refused_as_a_whole": "a producer is opened where the store can be (NotRemote)",
            "test_an_open_writer_takes_up_a_changed_check_within_a_second": "opens the store itself; see tests/remote/test_checks.py",
            "test_archives_and_backups_keep_them": "opens the store itself",
        },
    )
)
