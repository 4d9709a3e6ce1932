"""The power is cut on real processes: what was acknowledged was synced. Where a sync is left out, the cut finds it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from tests.parameters import rest_is_slow
from tests.simulation.planted_faults.core import skip_the_fsync, skip_the_fsync_of_blobs
from tests.waiting import until
from torture.child import Child, Log
from torture.power import Power

pytestmark = [pytest.mark.process, pytest.mark.chaos]

Plant = Callable[[], AbstractContextManager[None]]


def pour(log: Log, river: Path, name: str, size: int, plant: Plant) -> None:
    with plant(), ab.connect(river, create=True) as store, store.writer("s/all") as writer:
        number = 0
        while True:
            body = f"{name}-{number}".encode()
            writer.write(body + b" " * size, key="a").result()
            log("acked", body.decode())
            number += 1


class Scene:
    """A store whose processes are struck by power cuts."""

    def __init__(self, folder: Path, size: int, plant: Plant) -> None:
        self.folder = folder
        self.river = folder / "river"
        with ab.connect(self.river, create=True) as store:
            store.scopes.create("s")
            store.streams.create("s/all")
        self.power = Power(self.river, folder / "journals")
        self.power.restart()
        self.size = size
        self.plant = plant
        self.acked: list[bytes] = []

    def cut(self, round_: int) -> None:
        """Two processes write; then the power is cut."""
        names = [f"p{round_}-{each}" for each in range(2)]
        children = [
            Child(self.folder, name, pour, self.river, name, self.size, self.plant, journal=self.power.journal(name))
            for name in names
        ]

        def wrote_enough() -> bool:
            assert all(child.alive for child in children)
            return all(sum(1 for _ in child.lines()) >= 15 for child in children)

        until(wrote_enough)
        for child in children:
            child.kill()
        self.power.cut(random.Random(round_))
        self.acked += [words[1].encode() for child in children for words in child.lines() if words[0] == "acked"]

    def lost(self) -> str:
        """What is wrong, or nothing."""
        try:
            with ab.connect(self.river, create=True) as store:
                there = [event.body.split()[0] for event in store.reader("s/all")]
        except AnabranchError as exc:
            return str(exc)
        missing = set(self.acked) - set(there)
        return f"{len(missing)} acknowledged events are lost" if missing or len(there) != len(set(there)) else ""


@pytest.mark.parametrize("size", rest_is_slow([10, 100_000]), ids=["in the catalog", "in blobs"])
def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, size: int) -> None:
    scene = Scene(tmp_path, size, nullcontext)
    for round_ in range(2):
        scene.cut(round_)
        assert scene.lost() == ""


@pytest.mark.parametrize(("plant", "size"), [(skip_the_fsync, 10), (skip_the_fsync_of_blobs, 100_000)])
def test_a_sync_that_is_left_out_is_found_by_a_power_cut(tmp_path: Path, plant: Plant, size: int) -> None:
    scene = Scene(tmp_path, size, plant)
    for round_ in range(8):
        scene.cut(round_)
        if scene.lost():
            return
    pytest.fail("eight power cuts found nothing")
