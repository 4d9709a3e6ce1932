"""The decision of an append: the order of its checks, and random histories of writers against a model that keeps all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.decide import advance_log, advance_progress, decide
from anabranch.model.append import Appended, Batch, LogState, Part, Progress, Refusal, Refused, Verdict
from anabranch.model.ids import LogId, Micros, StreamId
from tests.contracts.catalog.samples import part as make_part

NOW = Micros(1_000)
HORIZON = Micros(900)
LOG = LogState(LogId(1), StreamId(7), length=10, appended_at=Micros(500))


def part(count: int = 1, **fields: Any) -> Part:
    return make_part(1, count, **fields)


def wrong(*faults: str) -> tuple[Part, LogState, Progress | None, Micros | None]:
    """A part of writer w that is wrong in these ways at once, with the log and the progress it is decided against."""
    log, progress = LOG, Progress(next=5, fence=3, recent=(Batch(4, 1, 9, 400, 3),))
    fields: dict[str, Any] = {"writer": "w", "first": 5, "writer_fence": 3, "fence": 2}
    if "duplicate" in faults:
        fields["first"] = 4
    elif "gap" in faults:
        fields["first"] = 6
    if "writer fenced" in faults:
        progress = replace(progress, fence=4)
    if "log fenced" in faults:
        log = replace(log, fence=8)
    if "sealed" in faults:
        log = replace(log, sealed=True)
    if "condition" in faults:
        fields["expected"] = 11
    return part(**fields), log, progress, HORIZON if "expired" in faults else None


ORDER: list[tuple[str, Verdict]] = [
    ("duplicate", Appended(9, Micros(400), duplicate=True)),
    ("writer fenced", Refused(Refusal.FENCED, 4)),
    ("log fenced", Refused(Refusal.FENCED, 8)),
    ("expired", Refused(Refusal.EXPIRED, HORIZON)),
    ("sealed", Refused(Refusal.SEALED, 10)),
    ("gap", Refused(Refusal.GAP, 5)),
    ("condition", Refused(Refusal.CONDITION, 10)),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_reasons_the_first_in_the_contracts_order_decides(first: int) -> None:
    for last in range(first, len(ORDER)):
        faults = [name for name, _ in ORDER[first : last + 1] if not (name == "gap" and ORDER[first][0] == "duplicate")]
        asked, log, progress, expired = wrong(*faults)
        assert decide(asked, log, progress, now=NOW, expired=expired) == ORDER[first][1], faults


def test_a_part_with_nothing_wrong_is_appended_at_the_end() -> None:
    asked, log, progress, expired = wrong()
    assert decide(asked, log, progress, now=NOW, expired=expired) == Appended(10, NOW)


def test_a_log_that_is_gone_comes_before_everything() -> None:
    asked, _, progress, expired = wrong("duplicate", "writer fenced", "expired")
    assert decide(asked, None, progress, now=NOW, expired=expired) == Refused(Refusal.GONE)


def test_append_times_never_go_back() -> None:
    assert decide(part(), LOG, None, now=Micros(499)) == Appended(10, Micros(500))


def test_a_part_without_a_sequence_is_never_a_duplicate() -> None:
    first = decide(part(3), LOG, None, now=NOW)
    assert isinstance(first, Appended)
    assert decide(part(3), advance_log(LOG, part(3), first), None, now=NOW) == Appended(13, NOW)


def test_only_the_same_numbers_count_and_fence_make_a_duplicate() -> None:
    progress = Progress(next=6, fence=3, recent=(Batch(4, 2, 9, 400, 3),))
    landed = part(2, writer="w", first=4, writer_fence=3)
    assert decide(landed, LOG, progress, now=NOW) == Appended(9, Micros(400), duplicate=True)
    for other in (
        part(1, writer="w", first=4, writer_fence=3),
        part(2, writer="w", first=3, writer_fence=3),
        part(2, writer="w", first=4, writer_fence=4),
    ):
        assert decide(other, LOG, progress, now=NOW) == Refused(Refusal.UNKNOWN_WRITER, 6)


def test_an_older_owner_never_learns_that_a_newer_owners_batch_is_its_own() -> None:
    newer = Progress(next=1, fence=2, recent=(Batch(0, 1, 9, 400, 2),))
    assert decide(part(writer="w", first=0, writer_fence=1), LOG, newer, now=NOW) == Refused(Refusal.FENCED, 2)


def test_a_newer_fences_batch_is_never_taken_for_a_duplicate() -> None:
    older = Progress(next=1, fence=1, recent=(Batch(0, 1, 9, 400, 1),))
    verdict = decide(part(writer="w", first=0, writer_fence=2), LOG, older, now=NOW)
    assert verdict == Refused(Refusal.UNKNOWN_WRITER, 1)


@dataclass
class Sent:
    """A batch of the model: what was asked for, and where it landed."""

    asked: Part
    start: int


@dataclass
class Model:
    """A log that never forgets: every batch of one writer's name, and whose fence is the newest."""

    sent: list[Sent] = field(default_factory=list)
    length: int = 0
    next: int = 0
    fence: int = 0

    def expect(self, asked: Part) -> Appended | Refusal:
        assert asked.sequence is not None
        first, fence = asked.sequence.first, asked.sequence.fence
        kept = self.sent[-limits.WRITER_BATCHES_KEPT :]
        for each in kept:
            assert each.asked.sequence is not None
            if (each.asked.sequence, each.asked.count) == (asked.sequence, asked.count):
                return Appended(each.start, NOW, duplicate=True)
        if fence < self.fence:
            return Refusal.FENCED
        if first != self.next:
            return Refusal.GAP if first > self.next and (self.sent or self.fence) else Refusal.UNKNOWN_WRITER
        return Appended(self.length, NOW)

    def land(self, asked: Part) -> None:
        assert asked.sequence is not None
        self.sent.append(Sent(asked, self.length))
        self.length += asked.count
        self.next += asked.count
        self.fence = max(self.fence, asked.sequence.fence)


Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "retry", "take over", "stray"]),
        st.integers(0, 20),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=60,
)


@given(steps)
def test_every_kept_batch_keeps_its_first_answer_whatever_else_happens(history: list[Step]) -> None:
    model, log, progress = Model(), replace(LOG, length=0), None
    for kind, pick, count, fence in history:
        if kind == "take over":
            model.fence += 1
            progress = replace(progress or Progress(), fence=model.fence)
            continue
        if kind == "retry" and model.sent:
            asked = model.sent[-1 - pick % len(model.sent)].asked
        elif kind == "stray":
            asked = part(count, writer="w", first=pick, writer_fence=fence)
        else:
            asked = part(count, writer="w", first=model.next, writer_fence=model.fence)
        expected = model.expect(asked)
        verdict = decide(asked, log, progress, now=NOW)
        if isinstance(expected, Appended):
            assert verdict == expected
            if not expected.duplicate:
                log, progress = advance_log(log, asked, expected), advance_progress(progress, asked, expected)
                model.land(asked)
        else:
            assert isinstance(verdict, Refused) and verdict.reason is expected
        assert (log.length, progress or Progress()) == (
            model.length,
            Progress(model.next, model.fence, (progress or Progress()).recent),
        )
    for each in model.sent[-limits.WRITER_BATCHES_KEPT :]:
        assert decide(each.asked, replace(log, sealed=True, fence=99), progress, now=NOW) == Appended(
            each.start, NOW, duplicate=True
        )
