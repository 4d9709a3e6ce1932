"""The judgement of what streams took over finds each kind of violation, and only those."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from tests.simulation.inheritance import Holding, Joint, judge_joints
from tests.simulation.ledger import Event, Ledger, Part, Sighting

pytestmark = pytest.mark.sim

FIRST, TAKEN, LAST = SegmentId(0, 0), SegmentId(1, 1), SegmentId(2, 2)


class Story:
    """`heir` has two events, takes over the three of `source`, and gets two more: all of one key, all sound."""

    def __init__(self) -> None:
        self.source, self.heir = Ledger("s/source"), Ledger("s/heir")
        self.stored: dict[Ledger, list[Sighting]] = {self.source: [], self.heir: []}
        self.heads: dict[Ledger, dict[SegmentId, int]] = {self.source: {}, self.heir: {}}
        for _ in range(3):
            self.write(self.source, FIRST, "theirs")
        for _ in range(2):
            self.write(self.heir, FIRST, "ours")
        self.joint = Joint("append", self.source, self.heir, 1)
        self.joint.ask()
        self.joint.answer({TAKEN: Part(self.source, FIRST, 0, 3)}, 2)
        for offset, (_, payload) in enumerate(list(self.stored[self.source])):
            self.stored[self.heir].append(self.sighting(TAKEN, offset, payload))
        for _ in range(2):
            self.write(self.heir, LAST, "ours")

    def sighting(self, segment: SegmentId, offset: int, payload: bytes) -> Sighting:
        return Sighting(EventPointer(StreamId(1), segment, offset), payload)

    def write(self, ledger: Ledger, segment: SegmentId, writer: str) -> Event:
        event = ledger.attempt(writer, "k")
        offset = sum(each.pointer.segment == segment for each in self.stored[ledger])
        self.stored[ledger].append(self.sighting(segment, offset, event.payload()))
        ledger.acked(event, self.stored[ledger][-1].pointer)
        return event

    def judge(self) -> str:
        holdings = {each: Holding(self.stored[each], self.heads[each]) for each in self.stored}
        own = [text for ledger, holding in holdings.items() for text in ledger.judge(holding.stored, holding.heads)]
        return "\n".join([*own, *judge_joints([[self.joint]], holdings)])


def test_a_sound_story_passes() -> None:
    assert Story().judge() == ""


def test_a_source_that_goes_on_and_is_truncated_changes_nothing() -> None:
    story = Story()
    story.write(story.source, FIRST, "theirs")
    del story.stored[story.source][:2]
    story.heads[story.source] = {FIRST: 2}
    assert story.judge() == ""


def test_a_heir_may_be_truncated() -> None:
    story = Story()
    del story.stored[story.heir][:4]
    story.heads[story.heir] = {FIRST: 2, TAKEN: 2}
    assert story.judge() == ""


def test_a_source_that_was_given_up_is_known_by_its_ledger() -> None:
    story = Story()
    del story.stored[story.source]
    assert story.judge() == ""
    story.stored[story.heir][3] = story.sighting(TAKEN, 1, b"theirs|k|9|")
    assert "nobody wrote to s/source" in story.judge()


def exchanged(story: Story) -> None:
    events = story.stored[story.heir]
    events[2], events[3] = (
        story.sighting(TAKEN, 0, events[3].payload),
        story.sighting(TAKEN, 1, events[2].payload),
    )


def cut_short(story: Story) -> None:
    del story.stored[story.heir][4]


def taken_too_early(story: Story) -> None:
    story.joint.parts = {TAKEN: Part(story.source, FIRST, 0, 2)}
    story.heir.parts = dict(story.joint.parts)
    del story.stored[story.heir][4]


def read_last(story: Story) -> None:
    events = story.stored[story.heir]
    story.stored[story.heir] = events[:2] + events[5:] + events[2:5]


def read_first(story: Story) -> None:
    events = story.stored[story.heir]
    story.stored[story.heir] = events[2:5] + events[:2] + events[5:]


def shows_the_future(story: Story) -> None:
    event = story.write(story.source, FIRST, "theirs")
    story.stored[story.heir].insert(5, story.sighting(TAKEN, 3, event.payload()))


def refused_and_there(story: Story) -> None:
    story.source.refused(Event("theirs", "k", 1))


def more_than_asked_for(story: Story) -> None:
    story.joint.exact = frozenset({(FIRST, 0), (FIRST, 1)})


def less_than_asked_for(story: Story) -> None:
    story.joint.exact = frozenset((FIRST, offset) for offset in range(4))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (exchanged, "which was acknowledged at"),
        (cut_short, "it ends too early"),
        (taken_too_early, "the source had it, and it was not taken over"),
        (read_last, "came afterwards, and lies before"),
        (read_first, "was there before, and lies behind"),
        (shows_the_future, "nobody wrote it"),
        (refused_and_there, "which was refused"),
        (more_than_asked_for, "0.0 2 is there"),
        (less_than_asked_for, "0.0 3 is not there"),
    ],
)
def test_each_fault_is_found(fault: Callable[[Story], None], told: str) -> None:
    story = Story()
    fault(story)
    assert told in story.judge()


def test_sources_in_another_order_are_found() -> None:
    """Two sources of one stitch, of which the second lies before the first."""
    story = Story()
    other = Ledger("s/other")
    event = other.attempt("others", "k")
    place = SegmentId(3, 3)
    other.acked(event, EventPointer(StreamId(2), FIRST, 0))
    second = Joint("stitch", other, story.heir, 1)
    second.answer({place: Part(other, FIRST, 0, 1)}, 2)
    story.stored[story.heir].insert(2, story.sighting(place, 0, event.payload()))
    holding = Holding(story.stored[story.heir], {})
    assert "s/other begins before s/source ends" in "\n".join(
        judge_joints([[story.joint, second]], {story.heir: holding})
    )
    assert judge_joints([[second, story.joint]], {story.heir: holding}) == []
