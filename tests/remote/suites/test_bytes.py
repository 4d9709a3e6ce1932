"""Byte streams over a connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.remote.suites.serving import connecting_by_brokers, suite

INSIDE = "looks inside the embedded store"

globals().update(
    suite(
        "tests.store.test_bytes",
        without={
            "test_bytes_that_do_not_follow_each_other_are_not_read": INSIDE,
            "test_nothing_lands_behind_a_hole": "makes the blobs of this process fail; see tests/remote/test_bytes.py",
            "test_a_seek_costs_the_logarithm": "counts the calls of the catalog",
            "test_reading_again_after_truncated_bytes_is_refused_again": "a client has fetched the bytes before they are gone",
            "test_rows_do_not_get_among_the_bytes": "stages events, which needs the store's files",
        },
    )
)


@pytest.fixture(scope="module", autouse=True)
def brokers() -> Iterator[None]:
    with connecting_by_brokers():
        yield
