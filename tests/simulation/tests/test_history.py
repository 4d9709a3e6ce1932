"""The history checker: what a log may do passes, however it is interleaved; each thing it may not do is found and named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.history import Fault, Kind, Operation, Outcome, Stored, check

SEGMENT = "s/x 0.0"


@dataclass
class Model:
    """A segment that takes operations one after another, each at a moment of its own within its interval."""

    rng: random.Random
    events: list[str] = field(default_factory=list)
    fence: int = 0
    sealed: bool = False
    now: int = 0
    history: list[Operation] = field(default_factory=list)

    def operation(self, kind: Kind, client: str = "c", **told: object) -> Operation:
        """Begun up to 30 before its moment, answered up to 30 after it: so operations overlap."""
        self.now += 10
        reach = self.rng.choice((1, 30))
        invoked, completed = self.now - self.rng.randrange(reach), self.now + 1 + self.rng.randrange(reach)
        operation = Operation(client, kind, SEGMENT, invoked, completed, Outcome.OK, **told)  # type: ignore[arg-type]
        self.history.append(operation)
        return operation

    def append(self, count: int = 1, expected: int | None = None, fence: int | None = None) -> Operation:
        tail = len(self.events)
        names = tuple(f"e{len(self.history)}.{i}" for i in range(count))
        operation = self.operation(Kind.APPEND, f"w{len(self.history)}", events=names, expected=expected, fence=fence)
        reasons = [(self.sealed, "sealed"), (fence is not None and fence < self.fence, "fenced")]
        reasons += [(expected not in (None, tail), "condition")]
        operation.reason = next((reason for wrong, reason in reasons if wrong), "")
        if operation.reason:
            operation.outcome = Outcome.REFUSED
        else:
            operation.offset = tail
            self.events += names
        return operation

    def read(self) -> Operation:
        start = self.rng.randrange(len(self.events) + 1)
        shown = tuple(self.events[start:])
        return self.operation(Kind.READ, f"r{len(self.history)}", offset=start, events=shown, to_tail=True)

    def tail(self, client: str = "t") -> Operation:
        return self.operation(Kind.TAIL, client, offset=len(self.events), sealed=self.sealed)

    def seal(self) -> Operation:
        self.sealed = True
        return self.operation(Kind.SEAL, "s", offset=len(self.events))

    def raise_fence(self, to: int) -> Operation:
        operation = self.operation(Kind.FENCE, "f", fence=to)
        if to < self.fence:
            operation.outcome = Outcome.REFUSED
        self.fence = max(self.fence, to)
        return operation

    def step(self) -> None:
        """Something at random, whose answer may be lost."""
        draw, tail = self.rng.random(), len(self.events)
        if draw < 0.5:
            expected = self.rng.choice((None, None, tail, max(0, tail - 1)))
            fence = self.rng.choice((None, None, self.fence, max(0, self.fence - 1)))
            operation = self.append(self.rng.randrange(1, 4), expected, fence)
        elif draw < 0.7:
            operation = self.read()
        elif draw < 0.85:
            operation = self.tail(f"t{self.rng.randrange(3)}")
        elif draw < 0.97:
            operation = self.raise_fence(self.fence + self.rng.randrange(-1, 2) if self.fence else 1)
        else:
            operation = self.seal()
        if self.rng.random() < 0.15:
            operation.outcome, operation.offset, operation.reason = Outcome.UNKNOWN, None, ""
            operation.completed = None
            if operation.kind is Kind.APPEND and self.rng.random() < 0.5:
                operation.segment = ""

    @property
    def stored(self) -> dict[str, Stored]:
        return {SEGMENT: Stored(0, tuple(self.events))}

    def faults(self) -> set[Fault]:
        return {anomaly.fault for anomaly in check(self.history, self.stored)}


def lived(seed: int, steps: int) -> Model:
    model = Model(random.Random(seed))
    for _ in range(steps):
        model.step()
    return model


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_a_correct_history_passes(seed: int, steps: int) -> None:
    model = lived(seed, steps)
    assert [str(each) for each in check(model.history, model.stored)] == []
    # Who does not know what is stored in the end finds no fault either.
    assert [str(each) for each in check(model.history)] == []


def test_a_long_history_is_checked_in_about_linear_time() -> None:
    model = Model(random.Random(1))
    for _ in range(3_000):
        model.append()
        model.tail()
    assert model.faults() == set()


# ---------------------------------------------------------------------- mutations


def sound(seed: int = 1) -> Model:
    """Ten acknowledged appends of one event, one after another, and a look at the tail."""
    model = Model(random.Random(seed))
    for _ in range(10):
        model.append()
        model.now += 100
    model.tail()
    model.now += 100
    return model


def lost(model: Model) -> None:
    del model.events[-1]


def lost_in_the_middle(model: Model) -> None:
    model.events[4] = "e999.0"
    model.history.append(Operation("w", Kind.APPEND, "", 0, None, Outcome.UNKNOWN, events=("e999.0",)))


def doubled(model: Model) -> None:
    model.events.append(model.events[3])


def stale_tail(model: Model) -> None:
    model.tail("other").offset = 7


def stale_read(model: Model) -> None:
    read = model.operation(Kind.READ, "other", offset=0, events=tuple(model.events[:6]), to_tail=True)
    assert read.outcome is Outcome.OK


def skipping_read(model: Model) -> None:
    model.operation(Kind.READ, "r", offset=0, events=tuple(model.events[:3]))
    model.now += 100
    model.operation(Kind.READ, "r", offset=5, events=tuple(model.events[5:]))


def misread(model: Model) -> None:
    model.operation(Kind.READ, "r", offset=2, events=(model.events[3],))


def moved(model: Model) -> None:
    model.history[2].offset, model.history[3].offset = 3, 2


def sinking_tail(model: Model) -> None:
    model.tail("t").offset = 9


def repeating_read(model: Model) -> None:
    model.operation(Kind.READ, "r", offset=0, events=tuple(model.events[:5]))
    model.now += 100
    model.operation(Kind.READ, "r", offset=4, events=tuple(model.events[4:]))


def torn(model: Model) -> None:
    for name in ("u.0", "u.1"):
        model.history.append(
            Operation("w", Kind.APPEND, "", model.now, None, Outcome.UNKNOWN, events=(name,), unit="u")
        )
    model.events.append("u.0")


def torn_append(model: Model) -> None:
    model.history.append(Operation("w", Kind.APPEND, "", model.now, None, Outcome.UNKNOWN, events=("u.0", "u.1")))
    model.events.append("u.1")


def refused_and_there(model: Model) -> None:
    model.append(expected=0)
    model.events.extend(model.history[-1].events)


def invented(model: Model) -> None:
    model.events.append("nobody's")


def refused_without_reason(model: Model) -> None:
    refused = model.operation(Kind.APPEND, "w", events=("no.0",), expected=10, reason="condition")
    refused.outcome = Outcome.REFUSED


def appended_on_a_wrong_condition(model: Model) -> None:
    model.append().expected = 3


def appended_behind_a_seal(model: Model) -> None:
    model.seal()
    model.now += 100
    model.sealed = False
    model.append()


def appended_below_the_fence(model: Model) -> None:
    model.raise_fence(5)
    model.now += 100
    model.append().fence = 4


def overtaken(model: Model) -> None:
    """Two appends whose offsets contradict their times."""
    first, second = model.history[2], model.history[3]
    first.invoked, second.invoked = second.invoked, first.invoked
    first.completed, second.completed = second.completed, first.completed


def foreseen(model: Model) -> None:
    """A tail that counts an append before it was asked for."""
    model.tail().offset = 11
    model.now += 100
    model.append()


def unsealed(model: Model) -> None:
    model.seal()
    model.now += 100
    model.tail().sealed = False


@pytest.mark.parametrize(
    ("mutation", "fault"),
    [
        (lost, Fault.LOST),
        (lost_in_the_middle, Fault.LOST),
        (doubled, Fault.DUPLICATED),
        (stale_tail, Fault.UNSEEN),
        (stale_read, Fault.UNSEEN),
        (skipping_read, Fault.UNSEEN),
        (misread, Fault.INCONSISTENT),
        (moved, Fault.INCONSISTENT),
        (sinking_tail, Fault.NON_MONOTONIC),
        (repeating_read, Fault.NON_MONOTONIC),
        (torn, Fault.TORN),
        (torn_append, Fault.TORN),
        (refused_and_there, Fault.ABORTED),
        (invented, Fault.INVENTED),
        (refused_without_reason, Fault.NOT_LINEARIZABLE),
        (appended_on_a_wrong_condition, Fault.NOT_LINEARIZABLE),
        (appended_behind_a_seal, Fault.NOT_LINEARIZABLE),
        (appended_below_the_fence, Fault.NOT_LINEARIZABLE),
        (overtaken, Fault.NOT_LINEARIZABLE),
        (foreseen, Fault.NOT_LINEARIZABLE),
        (unsealed, Fault.NOT_LINEARIZABLE),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_each_anomaly_is_found_and_named(mutation: Callable[[Model], None], fault: Fault) -> None:
    model = sound()
    assert model.faults() == set()
    mutation(model)
    found = check(model.history, model.stored)
    assert fault in {anomaly.fault for anomaly in found}, found
    assert str(found[0]).startswith(found[0].fault.value)


@given(st.integers(0, 2**32), st.integers(5, 40))
@settings(max_examples=100, deadline=None)
def test_an_acknowledged_event_that_goes_missing_is_found_in_any_history(seed: int, steps: int) -> None:
    model = lived(seed, steps)
    acked = [each for each in model.history if each.kind is Kind.APPEND and each.outcome is Outcome.OK]
    if acked:
        model.events.remove(acked[-1].events[-1])
        assert {Fault.LOST, Fault.INCONSISTENT} & model.faults()


def test_an_unknown_append_may_land_late_but_not_before_it_was_asked_for() -> None:
    model = sound()
    late = Operation("w", Kind.APPEND, "", model.now, None, Outcome.UNKNOWN, events=("late",))
    model.history.append(late)
    model.now += 500
    model.events.append("late")
    model.append()
    assert model.faults() == set()
    late.invoked = model.now + 100
    assert model.faults() == {Fault.NOT_LINEARIZABLE}
