"""The account of a transaction: what its clients were told agrees with itself and with the catalog, or is found."""

from __future__ import annotations

from itertools import count

from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.testing.ledger import Event, Fate, Ledger
from anabranch.testing.operations import Outcome
from anabranch.testing.record import Recorder
from anabranch.testing.transactions import Account, Line

STREAM = StreamId(7)


class Life:
    """A transaction on one stream."""

    def __init__(self) -> None:
        self.recorder = Recorder(count().__next__)
        self.ledger = Ledger("s/x")
        self.account = Account("t", self.recorder)

    def write(self, count: int) -> list[Line]:
        events = [self.ledger.attempt("w", "k") for _ in range(count)]
        lines = [Line(self.ledger, STREAM, event, str(event)) for event in events]
        self.account.lines += lines
        return lines

    def flush(self, lines: list[Line]) -> None:
        self.account.flushing(lines, "f")
        self.account.flushed(lines, "f")

    def fates(self) -> list[Fate]:
        return list(self.ledger.fates.values())


def info(state: TransactionState, events: int) -> TransactionInfo:
    return TransactionInfo("t", state, Micros(0), Micros(0), Micros(1), {STREAM: events} if events else {})


def test_what_is_committed_is_acknowledged_flushed_or_not_and_atomic_together() -> None:
    life = Life()
    flushed, own = life.write(2), life.write(3)
    life.flush(flushed)
    life.account.commit(own, "c")
    life.account.answered("c")
    assert life.account.committed(own) is None
    assert life.fates() == [Fate.ACKED] * 5
    assert {(each.unit, each.outcome) for each in life.recorder.operations} == {("t", Outcome.OK)}
    assert life.account.judge(info(TransactionState.COMMITTED, 5)) == []
    assert life.account.judge(info(TransactionState.COMMITTED, 4))
    assert life.account.judge(None) == ["transaction t is forgotten"]


def test_what_is_aborted_is_refused_though_a_commit_was_asked_for() -> None:
    life = Life()
    own = life.write(2)
    life.account.commit(own, "c")
    assert life.account.aborted() is None
    assert life.fates() == [Fate.REFUSED] * 2
    assert {each.outcome for each in life.recorder.operations} == {Outcome.REFUSED}
    assert life.account.judge(info(TransactionState.ABORTED, 0)) == []
    assert life.account.judge(info(TransactionState.COMMITTED, 2))


def test_two_answers_that_contradict_each_other_are_found() -> None:
    life = Life()
    assert life.account.aborted() is None
    assert life.account.committed([]) is not None


def test_a_commit_whose_answer_was_lost_leaves_open_what_was_its_own() -> None:
    life = Life()
    flushed, own = life.write(2), life.write(1)
    life.flush(flushed)
    life.account.commit(own, "c")
    assert life.account.found_committed() is None
    assert life.fates() == [Fate.ACKED, Fate.ACKED, Fate.PENDING]
    # It alone asked for it, so either all three are there or none.
    assert {each.unit for each in life.recorder.operations} == {"t"}


def test_where_two_had_asked_for_it_each_ones_own_stands_by_itself() -> None:
    life = Life()
    one, other = life.write(1), life.write(1)
    life.account.commit(one, "c1")
    life.account.commit(other, "c2")
    assert life.account.found_committed() is None
    assert [each.unit for each in life.recorder.operations] == ["c1", "c2"]


def test_a_flush_while_another_commits_may_be_taken_along() -> None:
    life = Life()
    lines = life.write(2)
    life.account.commit([], "c")
    life.account.flushing(lines, "f")
    assert [each.unit for each in life.recorder.operations] == ["f", "f"]
    assert life.account.committed([]) is None
    assert life.fates() == [Fate.PENDING] * 2
    life.account.flushed(lines, "f")
    assert life.fates() == [Fate.ACKED] * 2
    assert Event("w", "k", 0) in life.ledger.owed
