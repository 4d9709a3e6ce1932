"""Upkeep in the background runs, survives errors and stops when told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import StoreUnavailable
from anabranch.log.lease import HeldLease
from anabranch.log.upkeep.maintenance import Maintenance
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.store.kit import SECOND, Kit
from tests.waiting import until


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    made = Kit(tmp_path)
    made.clock.micros = SystemClock().now() - 2 * limits.COMPACT_AGE_US
    stream = made.create("iot/sensors")
    for _ in range(4):
        made.append(stream, [5])
        made.clock.pass_time(SECOND)
    yield made
    made.close()


def running(kit: Kit, seconds: float | None = 0.01, blobs: Any = None) -> Maintenance:
    runtime = Runtime(settings=replace(kit.runtime.settings, maintenance_s=seconds))
    made = Maintenance(kit.catalog, blobs or kit.blobs, runtime)
    made.start()
    return made


def test_old_extents_are_compacted_automatically(kit: Kit) -> None:
    upkeep = running(kit)
    until(lambda: len(kit.files("history/")) == 1)
    until(lambda: upkeep.rounds >= 2)
    upkeep.close()
    assert upkeep.failure is None
    rounds = upkeep.rounds
    time.sleep(0.05)
    assert upkeep.rounds == rounds


def test_without_a_period_nothing_runs_and_close_is_harmless(kit: Kit) -> None:
    upkeep = running(kit, None)
    time.sleep(0.05)
    upkeep.close()
    upkeep.close()
    assert kit.files("history/") == []


def test_close_interrupts_a_long_pause(kit: Kit) -> None:
    upkeep = running(kit, 3600)
    upkeep.close()  # or this test ends only when the run gives it up


def test_an_error_is_kept_and_the_next_round_tries_again(kit: Kit) -> None:
    class Failing:
        broken = True

        def put(self, key: str, chunks: Any) -> None:
            if self.broken:
                raise StoreUnavailable("the disk is gone")
            kit.blobs.put(key, chunks)

        def __getattr__(self, name: str) -> Any:
            return getattr(kit.blobs, name)

    blobs = Failing()
    upkeep = running(kit, blobs=blobs)
    until(lambda: isinstance(upkeep.failure, StoreUnavailable))
    blobs.broken = False
    until(lambda: len(kit.files("history/")) == 1)
    until(lambda: upkeep.failure is None)
    upkeep.close()


def test_only_one_process_compacts_at_a_time(kit: Kit) -> None:
    kit.clock.micros = SystemClock().now()
    with HeldLease(kit.catalog, kit.runtime, "compact", "another process"):
        upkeep = running(kit)
        until(lambda: upkeep.rounds >= 2)
        assert kit.files("history/") == []
    until(lambda: len(kit.files("history/")) == 1)
    upkeep.close()


@pytest.mark.parametrize("where", ["memory://", "folder"])
def test_background_upkeep_runs_while_the_store_is_written_to(tmp_path: Path, where: str) -> None:
    url = where if where == "memory://" else str(tmp_path / "store")
    with ab.connect(url, settings=Settings(maintenance_s=0.02), create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/raw")
        bodies = [b"event %d" % number for number in range(limits.COMPACT_EXTENTS_MIN + 300)]
        with store.writer("iot/raw") as writer:
            for body in bodies:
                writer.write(body).result()
        until(lambda: any(True for _ in store.blobs.list("history/")))
        assert list(store.check()) == []
        assert [event.body for event in store.reader("iot/raw")] == bodies
