"""The judgement finds each kind of violation, and only those. A check that cannot fail proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from tests.simulation.ledger import Event, Ledger, Sighting

pytestmark = pytest.mark.sim


def at(offset: int, segment: int = 0) -> EventPointer:
    return EventPointer(StreamId(1), SegmentId(0, segment), offset)


class Story:
    """A ledger and what its stream holds, both sound: five acknowledged events, and one reader that saw them."""

    def __init__(self) -> None:
        self.ledger = Ledger("s/x")
        self.stored: list[Sighting] = []
        self.events: list[Event] = []
        for _ in range(5):
            self.events.append(self.store(self.attempt(), acked=True))
        self.reading = self.ledger.reading("r")
        self.reading.seen.extend(self.stored)
        self.reading.finished = True

    def attempt(self) -> Event:
        return self.ledger.attempt("w", "k")

    def store(self, event: Event, *, acked: bool = False) -> Event:
        pointer = at(len(self.stored))
        self.stored.append(Sighting(pointer, event.payload(3)))
        if acked:
            self.ledger.acked(event, pointer)
        return event

    def judge(self) -> str:
        return "\n".join(self.ledger.judge(self.stored))


def test_a_sound_story_passes() -> None:
    story = Story()
    story.attempt()  # never answered, not there
    story.ledger.unknown(story.store(story.attempt()))  # answer lost, there
    story.ledger.refused(story.attempt())
    unit = [story.attempt(), story.attempt()]
    story.ledger.unit(unit)
    for event in unit:
        story.store(event)
    assert story.judge() == ""


def lost(story: Story) -> None:
    del story.stored[-1], story.reading.seen[-1]


def doubled(story: Story) -> None:
    story.store(story.events[-1])


def reordered(story: Story) -> None:
    late, early = story.attempt(), story.attempt()
    story.store(early)
    story.store(late)


def refused_and_there(story: Story) -> None:
    story.ledger.refused(story.store(story.attempt()))


def moved(story: Story) -> None:
    story.ledger.acked(story.store(story.attempt()), at(99))


def torn(story: Story) -> None:
    unit = [story.attempt(), story.attempt()]
    story.ledger.unit(unit)
    story.store(unit[0])


def invented(story: Story) -> None:
    story.stored.append(Sighting(at(5), b"w|k|77|"))


def holed(story: Story) -> None:
    story.stored.append(Sighting(at(8), story.attempt().payload()))


def misread(story: Story) -> None:
    story.reading.seen[2] = Sighting(at(2), story.events[3].payload())


def skipped(story: Story) -> None:
    del story.reading.seen[2]


def unseen(story: Story) -> None:
    del story.reading.seen[-1]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lost, "acknowledged, and not there"),
        (doubled, "stored more than once"),
        (reordered, "out of order in the stream"),
        (refused_and_there, "refused, and yet there"),
        (moved, "not where it was acknowledged"),
        (torn, "1 of the 2 events"),
        (invented, "nobody wrote it"),
        (holed, "not contiguous in the stream"),
        (misread, "saw what is not stored there"),
        (skipped, "not contiguous in reader r"),
        (unseen, "did not see them: w/k:4"),
    ],
)
def test_each_fault_is_found(fault: Callable[[Story], None], told: str) -> None:
    story = Story()
    fault(story)
    assert told in story.judge()
