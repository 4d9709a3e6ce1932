"""Publishing staged events: all at once, and only once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.streams.publish import NumberedUnit, Publication
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[ab.Store]:
    with ab.connect(tmp_path, runtime=runtime_by(clock), create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/out", schema=pa.schema([("key", pa.string()), ("n", pa.int64())]), key="key")
        yield made


def staged(store: ab.Store, number: int, *, replace: bool = False) -> Publication:
    stager = store.stager("s/out")
    stager.write(pa.table({"key": ["a", "b"], "n": [number, number]}))
    return Publication(store.streams.get("s/out").id, stager.finish(), replace)


def found(store: ab.Store) -> list[int]:
    with store.reader("s/out") as reader:
        return [event.body["n"] for event in reader]


def test_a_request_publishes_once(store: ab.Store) -> None:
    assert store.publish([staged(store, 1)], request="job")
    assert not store.publish([staged(store, 2)], request="job")
    assert found(store) == [1, 1]
    with pytest.raises(InvalidArgument, match="request id"):
        store.publish([staged(store, 3)], request="")


def test_a_number_of_a_series_publishes_once_however_late_it_is_repeated(store: ab.Store, clock: ManualClock) -> None:
    for number in (0, 1, 4):
        assert store.publish([staged(store, number)], request=NumberedUnit("query", number))
    clock.pass_time(2 * limits.REQUESTS_KEPT_US)
    store.collect()
    for number in (4, 3, 0):
        assert not store.publish([staged(store, number)], request=NumberedUnit("query", number))
    assert store.publish([staged(store, 0)], request=NumberedUnit("another", 0))
    assert store.publish([staged(store, 5, replace=True)], request=NumberedUnit("query", 5))
    assert found(store) == [5, 5]
    assert list(store.check()) == []


def test_what_a_slow_job_stages_is_kept_until_it_is_published(store: ab.Store, clock: ManualClock) -> None:
    with store.hold("spark", "job", first_us=limits.JOB_LEASE_US) as hold:
        clock.pass_time(2 * limits.HORIZON_US)  # what comes before the job's last stage
        store.collect()
        hold.renew()
        stager = store.stager("s/out")
        stager.write(pa.table({"key": ["a"] * 10_000, "n": list(range(10_000))}))
        publication = Publication(store.streams.get("s/out").id, stager.finish())
        clock.pass_time(2 * limits.HORIZON_US)
        store.collect()
        assert store.publish([publication], request="job")
    assert len(found(store)) == 10_000
    assert list(store.check()) == []
