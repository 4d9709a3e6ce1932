"""The history checker on transactions: whole ones pass, whatever lies between; torn, half seen and aborted ones are found."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.history import Fault, Kind, Operation, Outcome, Stored, check

STREAMS = ("a", "b", "c")


class Transactions:
    """Streams of one segment each, to which transactions append one after another; whoever looks sees all or nothing."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.events: dict[str, list[str]] = {stream: [] for stream in STREAMS}
        self.heads = dict.fromkeys(STREAMS, 0)
        self.history: list[Operation] = []
        self.now = 0

    def commit(self, name: str, streams: tuple[str, ...] = STREAMS, *, answered: bool = True) -> list[Operation]:
        """Asked for, done, answered; nobody was told where the events lie."""
        asked = self.operations(name, streams)
        for stream in streams:
            self.events[stream] += [f"{name}.{stream}.{n}" for n in range(2)]
        for each in asked:
            if answered:
                each.outcome, each.completed = Outcome.OK, self.later()
        return asked

    def abort(self, name: str) -> list[Operation]:
        asked = self.operations(name, STREAMS)
        for each in asked:
            each.outcome, each.completed = Outcome.REFUSED, self.later()
        return asked

    def operations(self, name: str, streams: tuple[str, ...]) -> list[Operation]:
        begun = self.later()
        made = [
            Operation(name, Kind.APPEND, "", begun, events=(f"{name}.{stream}.{n}",), unit=name, into=f"{stream} ")
            for stream in streams
            for n in range(2)
        ]
        self.history += made
        return made

    def read(self, stream: str, upto: int | None = None) -> Operation:
        events = self.events[stream][self.heads[stream] : upto]
        read = Operation("r", Kind.READ, f"{stream} 0", self.later(), self.later(), Outcome.OK, self.heads[stream])
        read.client = f"r{len(self.history)}"
        read.events, read.to_tail = tuple(events), True
        self.history.append(read)
        return read

    def truncate(self, stream: str, head: int) -> None:
        self.heads[stream] = head

    def later(self) -> int:
        self.now += 10
        return self.now

    def check(self) -> list[str]:
        stored = {
            f"{stream} 0": Stored(self.heads[stream], tuple(events[self.heads[stream] :]))
            for stream, events in self.events.items()
        }
        return [str(each) for each in check(self.history, stored)]

    def step(self, number: int) -> None:
        draw = self.rng.random()
        streams = tuple(stream for stream in STREAMS if self.rng.random() < 0.7) or ("a",)
        if draw < 0.4:
            self.commit(f"t{number}", streams, answered=self.rng.random() < 0.8)
        elif draw < 0.6:
            self.abort(f"t{number}")
        elif draw < 0.7:
            stream = self.rng.choice(STREAMS)
            self.truncate(stream, self.rng.randrange(self.heads[stream], len(self.events[stream]) + 1))
        else:
            self.read(self.rng.choice(STREAMS))


@given(st.integers(0, 2**32), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_transactions_that_are_whole_pass(seed: int, steps: int) -> None:
    life = Transactions(seed)
    for number in range(steps):
        life.step(number)
    assert life.check() == []


def torn_by_a_crash(life: Transactions) -> None:
    life.commit("torn", answered=False)
    del life.events["b"][-2:]


def torn_beside_a_truncated_stream(life: Transactions) -> None:
    """What was truncated is another stream, so it explains nothing."""
    life.commit("torn", ("a", "b"), answered=False)
    del life.events["b"][-1:]
    life.truncate("c", 2)


def seen_by_halves(life: Transactions) -> None:
    """It was committed stream by stream: who saw one part looked for the other, and it came later."""
    life.commit("halves", ("a", "b"))
    life.read("a")
    life.read("b", upto=len(life.events["b"]) - 2)


def aborted_and_there(life: Transactions) -> None:
    life.abort("gone")
    life.events["c"].append("gone.c.1")


def aborted_and_seen_for_a_moment(life: Transactions) -> None:
    life.abort("gone")
    life.events["c"] += ["gone.c.0"]
    life.read("c")
    life.truncate("c", len(life.events["c"]))


def seen_before_the_commit(life: Transactions) -> None:
    asked = life.commit("early", ("a",))
    read = life.read("a")
    for each in asked:
        each.invoked, each.completed = life.later(), life.now + 10_000
    assert read.completed is not None
    assert read.completed < asked[0].invoked


def committed_and_lost(life: Transactions) -> None:
    life.commit("lost", ("a", "b"))
    del life.events["a"][-2:]
    del life.events["b"][-2:]


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (torn_by_a_crash, Fault.TORN),
        (torn_beside_a_truncated_stream, Fault.TORN),
        (seen_by_halves, Fault.TORN),
        (aborted_and_there, Fault.ABORTED),
        (aborted_and_seen_for_a_moment, Fault.ABORTED),
        (seen_before_the_commit, Fault.EARLY),
        (committed_and_lost, Fault.LOST),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_planted_history_is_found_and_named(plant: Callable[[Transactions], None], fault: Fault) -> None:
    life = Transactions()
    life.commit("first")
    life.abort("second")
    for stream in STREAMS:
        life.read(stream)
    assert life.check() == []
    plant(life)
    found = life.check()
    assert any(each.startswith(f"{fault.value}:") for each in found), found


def test_truncation_may_take_a_part_of_a_transaction_that_nobody_saw() -> None:
    life = Transactions()
    life.commit("whole", ("a", "b"))
    life.truncate("b", 2)
    assert life.check() == []
