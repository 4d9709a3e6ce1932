"""How long a caller waits, in a store that it has open itself and through a broker."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch.store import Store

NO_WAITS = (math.nan, -1, -0.5, -math.inf, "5", True, b"1", [1])


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest, embedded: Store) -> Store:
    embedded.write("iot/raw", pa.table({"n": [1, 2, 3]}), create=True)
    made: Store = request.getfixturevalue(request.param)
    return made


def waits(store: Store, embedded: Store, tmp_path: Path) -> dict[str, Callable[[Any], object]]:
    """Each method that waits, which is called with how long."""
    group = store.groups.open("iot/all", streams=["iot/raw"])
    job = store.jobs.archive("iot/raw", tmp_path / "archive")
    job.wait()
    writer, producer = store.writer("iot/raw"), embedded.producer("iot/raw", "p")
    one, batch = writer.write({"n": 4}), writer.write_batch(pa.table({"n": [5]}))
    produced = producer.append(pa.table({"n": [6]}))
    writer.flush()
    return {
        "reader": store.reader("iot/raw").read,
        "group reader": group.reader("r").read,
        "checkpoint": lambda seconds: group.checkpoint("c", timeout_s=seconds),
        "cut": lambda seconds: group.generate_cut(timeout_s=seconds),
        "job": store.jobs.get(job.id).wait,
        "notifications": store.notifications.read("iot/raw", follow=True).next,
        "event": one.result,
        "batch": batch.result,
        "landings": batch.landings,
        "producer": produced.result,
        "lease of a transaction": lambda seconds: store.transactions.begin(lease_s=seconds),
        "lease of a group": lambda seconds: store.groups.open("iot/new", streams=["iot/raw"], lease_s=seconds),
        "watermark": lambda seconds: store.watermarks.idle("iot/raw", seconds),
    }


def test_what_is_no_time_to_wait_is_refused(store: Store, embedded: Store, tmp_path: Path) -> None:
    for name, wait in waits(store, embedded, tmp_path).items():
        for seconds in NO_WAITS:
            try:
                with pytest.raises(InvalidArgument) as refused:
                    wait(seconds)
            except BaseException as exc:
                exc.add_note(f"{name} with {seconds!r}")
                raise
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize("seconds", [math.inf, 1e300, 10**400], ids=["infinity", "a large number", "a larger integer"])
def test_an_endless_wait_ends_with_what_it_waits_for(
    store: Store, embedded: Store, seconds: float, tmp_path: Path
) -> None:
    group = store.groups.open("iot/all", streams=["iot/raw"])
    with group.reader("r") as reader, store.reader("iot/raw", start="tail", follow=True) as follower:
        batch = reader.read(seconds)
        assert batch is not None and batch.num_rows == 3
        timer = threading.Timer(0.1, lambda: embedded.write("iot/raw", pa.table({"n": [4]})))
        timer.start()
        found = follower.read(seconds)
        timer.join()
        assert found is not None and found.num_rows == 1
    assert isinstance(group.generate_cut(timeout_s=seconds), dict)
    job = store.jobs.archive("iot/raw", tmp_path / "archive")
    assert store.jobs.get(job.id).wait(seconds).events == 4
    with store.notifications.read("iot/raw") as notes:
        assert notes.next(seconds) is not None
