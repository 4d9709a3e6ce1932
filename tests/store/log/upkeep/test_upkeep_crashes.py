"""A crash at any port call of compaction and of collection loses nothing, and leaves nothing that is never found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch import limits
from anabranch.log.checking.check import check
from anabranch.log.upkeep.collect import collect
from anabranch.log.upkeep.compact import compact
from anabranch.testing.faults import Action, Call, Gate, SimulatedCrash
from anabranch.testing.faulty_ports import FaultyBlobs, FaultyCatalog
from tests.store.kit import SECOND, Kit


class CrashAtStep:
    """Crashes a process at its `number`th step: calls of blobs, and beginning or committing a transaction have two
    each, before the effect and after it."""

    def __init__(self, number: int) -> None:
        self._left = (number + 1) // 2
        self._action = Action.CRASH_BEFORE if number % 2 else Action.CRASH_AFTER

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        self._left -= call.name.startswith(("blobs.", "catalog.")) or call.name == "writing.commit"
        return self._action if self._left == 0 else Action.PASS


class Doomed:
    """The ports of a process that crashes at its `number`th step."""

    def __init__(self, alive: Any, number: int) -> None:
        self.gate = Gate(CrashAtStep(number))
        self.catalog = FaultyCatalog(alive.catalog, self.gate)
        self.blobs = FaultyBlobs(alive.blobs, self.gate)


def prepare(folder: Path) -> tuple[Kit, dict[Any, Any]]:
    kit = Kit(folder, inline_bytes_max=1_000)
    sensors, other, doomed = kit.create("iot/sensors", segments=2), kit.create("iot/other"), kit.create("iot/doomed")
    for count in (2, 50, 3):
        kit.append(sensors, [count, count])
        kit.append(other, [count])
        kit.append(doomed, [count])
        kit.clock.pass_time(SECOND)
    compact(kit.catalog, kit.blobs, kit.runtime, stream=other, force=True)
    kit.append(other, [4])
    kit.drop(doomed)
    collect(kit.catalog, kit.blobs, kit.runtime)
    kit.clock.pass_time(2 * limits.HORIZON_US)
    return kit, {log: kit.read(log) for stream in (sensors, other) for log in kit.logs(stream)}


def do_compact(kit: Kit, catalog: Any, blobs: Any) -> None:
    compact(catalog, blobs, kit.runtime, force=True)


def do_collect(kit: Kit, catalog: Any, blobs: Any) -> None:
    collect(catalog, blobs, kit.runtime)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("work", [do_compact, do_collect])
def test_a_crash_at_any_port_call_is_harmless(
    tmp_path: Path, work: Callable[[Kit, Any, Any], None], stride: int
) -> None:
    number, crashed = 0, True
    while crashed:
        number += stride
        assert number < 500
        kit, rows = prepare(tmp_path / str(number))
        doomed = Doomed(kit, number)
        try:
            work(kit, doomed.catalog, doomed.blobs)
            crashed = False
        except SimulatedCrash:
            pass
        assert list(check(kit.catalog, kit.blobs, now=kit.clock.now())) == [], f"crash at call {number}"
        assert {log: kit.read(log) for log in rows} == rows, f"crash at call {number}"
        recover(kit)
        assert {log: kit.read(log) for log in rows} == rows, f"crash at call {number}"
        kit.close()
    assert number > 10


def recover(kit: Kit) -> None:
    """Another process does the same later; then every file is one that somebody views."""
    kit.clock.pass_time(2 * limits.HORIZON_US)
    compact(kit.catalog, kit.blobs, kit.runtime, force=True)
    for _ in range(2):
        collect(kit.catalog, kit.blobs, kit.runtime)
        kit.clock.pass_time(2 * limits.HORIZON_US)
    assert list(check(kit.catalog, kit.blobs, now=kit.clock.now())) == []
    with kit.catalog.reading() as snapshot:
        listed = {row.key for row in snapshot.blobs_after(0, 1_000) if snapshot.blob_in_use(row.id)}  # type: ignore[arg-type]
        assert snapshot.leases() == []
    assert set(kit.files()) == listed
    assert kit.files("commits/") == []
