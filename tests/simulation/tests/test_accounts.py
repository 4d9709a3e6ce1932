"""The account of a transaction: what its clients were told agrees with itself and with the catalog, or is found."""

from __future__ import annotations

from itertools import count

from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState
from tests.simulation.ledger import Event, Fate, Ledger
from tests.simulation.operations import Outcome
from tests.simulation.record import Recorder
from tests.simulation.transactions import Account, Line

STREAM = StreamId(7)


class AccountHistory:
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
    history = AccountHistory()
    flushed, own = history.write(2), history.write(3)
    history.flush(flushed)
    history.account.commit(own, "c")
    history.account.answered("c")
    assert history.account.committed(own) is None
    assert history.fates() == [Fate.ACKED] * 5
    assert {(each.unit, each.outcome) for each in history.recorder.operations} == {("t", Outcome.OK)}
    assert history.account.judge(info(TransactionState.COMMITTED, 5)) == []
    assert history.account.judge(info(TransactionState.COMMITTED, 4))
    assert history.account.judge(None) == ["transaction t is forgotten"]


def test_what_is_aborted_is_refused_though_a_commit_was_asked_for() -> None:
    history = AccountHistory()
    own = history.write(2)
    history.account.commit(own, "c")
    assert history.account.aborted() is None
    assert history.fates() == [Fate.REFUSED] * 2
    assert {each.outcome for each in history.recorder.operations} == {Outcome.REFUSED}
    assert history.account.judge(info(TransactionState.ABORTED, 0)) == []
    assert history.account.judge(info(TransactionState.COMMITTED, 2))


def test_two_answers_that_contradict_each_other_are_found() -> None:
    history = AccountHistory()
    assert history.account.aborted() is None
    assert history.account.committed([]) is not None


def test_a_commit_whose_answer_was_lost_leaves_open_what_was_its_own() -> None:
    history = AccountHistory()
    flushed, own = history.write(2), history.write(1)
    history.flush(flushed)
    history.account.commit(own, "c")
    assert history.account.found_committed() is None
    assert history.fates() == [Fate.ACKED, Fate.ACKED, Fate.PENDING]
    # It alone asked for it, so either all three are there or none.
    assert {each.unit for each in history.recorder.operations} == {"t"}


def test_two_concurrent_commits_are_judged_separately() -> None:
    history = AccountHistory()
    one, other = history.write(1), history.write(1)
    history.account.commit(one, "c1")
    history.account.commit(other, "c2")
    assert history.account.found_committed() is None
    assert [each.unit for each in history.recorder.operations] == ["c1", "c2"]


def test_a_concurrent_flush_may_be_committed() -> None:
    history = AccountHistory()
    lines = history.write(2)
    history.account.commit([], "c")
    history.account.flushing(lines, "f")
    assert [each.unit for each in history.recorder.operations] == ["f", "f"]
    assert history.account.committed([]) is None
    assert history.fates() == [Fate.PENDING] * 2
    history.account.flushed(lines, "f")
    assert history.fates() == [Fate.ACKED] * 2
    assert Event("w", "k", 0) in history.ledger.owed
