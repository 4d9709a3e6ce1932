"""Backups, rebuilds, repairs and rotations beside everything else that goes on in a store, under all faults; and the
judge of what they make, which is given wrong records."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from tests.simulation.clients import RECOVERY, Arena
from tests.simulation.clients.recovery_judgement import Moment, copied_well
from tests.simulation.inheritance import Holding
from tests.simulation.ledger import Event, Ledger, Sighting
from tests.simulation.simulation import Simulation

pytestmark = pytest.mark.sim

EVERYBODY = tuple(dict(client for mix in RECOVERY for client in mix).items())


@pytest.mark.parametrize("place", ["folder", "s3", "sealed"])
def test_what_is_made_of_a_backup_or_a_manifest_is_what_there_was(place: str) -> None:
    """One life after another, until all has been done that this is about."""
    done = Counter[str]()
    wanted = ("backup", "restore", "export", "repair of what is sound", *(("rotation",) if place == "sealed" else ()))
    for seed in range(1, 13):
        outcome = Simulation(seed, steps=3_000, mixes=[EVERYBODY], place=place).run()
        assert outcome.sound, (seed, outcome.violations, outcome.error)
        done += outcome.done
        if all(done[what] for what in wanted):
            return
    pytest.fail(f"in twelve workloads, not all of {wanted} was done: {done}")


# the judge

STREAM, SEGMENT = StreamId(7), SegmentId(0, 0)


class Scene:
    """A stream with three events: two were acknowledged before a copy began, one was handed over when it was done."""

    def __init__(self) -> None:
        self.arena = Arena(random.Random(1))
        self.ledger = Ledger("s/x")
        self.arena.adopt(self.ledger, STREAM, active=True)
        self.events = [self._write(), self._write()]
        began = Moment.begin(self.arena)
        self.moment = began.over(self.arena)
        self.events.append(self._write())

    def _write(self) -> Event:
        event = self.ledger.attempt("w", "k")
        self.ledger.acked(event, EventPointer(STREAM, SEGMENT, event.number))
        return event

    def judge(self, *numbers: int, head: int = 0, payload: bytes | None = None) -> list[str]:
        """What is said of a copy with these events at these places."""
        stored = [
            Sighting(EventPointer(STREAM, SEGMENT, offset), payload or self.events[number].payload())
            for offset, number in enumerate(numbers, head)
        ]
        found = {STREAM: Holding(stored, {SEGMENT: head})}
        return copied_well(self.arena, "copy", self.moment, found, None)  # type: ignore[arg-type]


def test_a_copy_of_what_was_acknowledged_is_in_order() -> None:
    assert Scene().judge(0, 1) == []


def test_a_copy_without_what_was_truncated_is_in_order() -> None:
    assert Scene().judge(1, head=1) == []


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0,), "acknowledged, and not there: w/k:1"),
        ((0, 1, 2), "nobody wrote it"),
        ((0, 1, 1), "stored more than once"),
        ((1, 0), "not where it was acknowledged"),
    ],
    ids=["too short", "too new", "doubled", "turned round"],
)
def test_a_copy_that_is_not_what_there_was_is_reported(numbers: tuple[int, ...], said: str) -> None:
    assert any(said in text for text in Scene().judge(*numbers))


def test_a_stream_that_is_not_in_the_copy_is_reported_unless_it_was_given_up() -> None:
    scene = Scene()
    assert "streams are not in it: s/x" in copied_well(scene.arena, "copy", scene.moment, {}, None)[0]  # type: ignore[arg-type]
    scene.ledger.gone = True
    assert copied_well(scene.arena, "copy", scene.moment, {}, None) == []  # type: ignore[arg-type]
