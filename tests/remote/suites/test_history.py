"""Reading history in parts over a connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.remote.suites.serving import connecting_by_brokers, suite

globals().update(
    suite(
        "tests.store.reading.history.test_history",
        without={
            "test_a_range_of_a_store_in_memory_needs_the_store_when_unpickled": "the broker has an address, so such a range travels",
            "test_a_slow_consumer_keeps_memory_within_the_bound": "the broker's memory lies in the same process",
        },
    )
)


@pytest.fixture(scope="module", autouse=True)
def brokers() -> Iterator[None]:
    with connecting_by_brokers():
        yield
