"""A driver that can't start tells its host why."""

from __future__ import annotations

import queue
from pathlib import Path

from anabranch.spark.queries.driver_process import DriverEvent, DriverProcess
from anabranch.store import StoreAddresses
from tests.waiting import PATIENCE_S


def test_a_driver_whose_store_is_gone_says_so_and_ends(tmp_path: Path) -> None:
    events: queue.SimpleQueue[DriverEvent] = queue.SimpleQueue()
    driver = DriverProcess(StoreAddresses.of(tmp_path / "gone"), {}, events, warm=False)
    assert events.get(timeout=PATIENCE_S) == (driver, None)
    how = driver.end()
    assert how.startswith("because ") and str(tmp_path / "gone") in how
