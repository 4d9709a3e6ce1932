"""A while of torture on every place: nothing is violated. Where a copy is too short, its judge says so."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from anabranch.testing.ledger import Ledger
from anabranch.testing.wounds_algebra import copy_all_but_the_last_event
from tests.waiting import until
from torture.child import Child, Tell
from torture.conductor import Report, Run
from torture.place import STREAMS, Place
from torture.places import NAMES, place
from torture.shuffle import copy
from torture.taken import Taken
from torture.told import Told

pytestmark = [pytest.mark.process, pytest.mark.chaos]

_SECONDS = 40.0
Plant = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path, name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with place(name, tmp_path) as (there, servers):
        report = Run(name, there, tmp_path, seed, servers).run(_SECONDS, _silent)
    assert report.violations == [], f"seed {seed}: {report}"
    assert report.counts["acknowledged events"] > 0
    assert sum(report.faults.values()) > 0


def _silent(report: Report) -> None:
    pass


def _copied(tell: Tell, place: Place, stop: Path, plant: Plant) -> None:
    with plant(), place.open(0) as store:
        copy(tell, stop, store, STREAMS[0], "copier-1")


@pytest.mark.parametrize("plant", [nullcontext, copy_all_but_the_last_event])
def test_a_copy_that_ends_before_its_cut_is_told(tmp_path: Path, plant: Plant) -> None:
    there, stop = Place(str(tmp_path / "river")), tmp_path / "stop"
    with there.open(0) as store:
        store.streams.create_scope("t")
        for stream in STREAMS:
            store.streams.create(stream)
            with store.writer(stream) as writer:
                for number in range(3):
                    writer.write(b"%d" % number, key="k").result()
    child = Child(tmp_path, "copier", _copied, there, stop, plant)
    until(lambda: not child.alive)
    assert [words[0] for words in child.lines()][-1] == "done"
    with there.open(0) as store:
        ledgers = {stream: Ledger(stream) for stream in STREAMS}
        wrong = Taken(store, [Told(stream) for stream in STREAMS], ledgers, [child]).wrong
    assert any("the copy was told to end at" in text for text in wrong) == (plant is not nullcontext), wrong
