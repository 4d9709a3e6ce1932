"""Which driver a host gives a question, and when it asks again. Needs no Spark: the processes are stand-ins."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.state.query_question import QUERY_QUESTION, QueryQuestion
from anabranch.deployments.questions import answer, open_questions
from anabranch.model.ids import Micros
from anabranch.spark.queries import driver_pool
from anabranch.spark.queries.driver_pool import DriverPool
from anabranch.spark.queries.questions import Questions
from anabranch.store import StoreAddresses


class Driver:
    """Starts at once, and notes what it is asked."""

    started: list[Driver]

    def __init__(self, *_: object, warm: bool) -> None:
        self.warm = warm
        self.ready = True
        self.on_cluster = False
        self.owner = None
        self.asked: list[str] = []
        self.started.append(self)

    def send(self, *, answer: str) -> None:
        self.asked.append(answer)

    def end(self, timeout_s: float = 0.0) -> str:
        del timeout_s
        return "by signal 9"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with ab.connect(tmp_path / "river", create=True) as made:
        yield made


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> DriverPool:
    Driver.started = []
    monkeypatch.setattr(driver_pool, "DriverProcess", Driver)
    return DriverPool(StoreAddresses("/nowhere", None, None), {}, queue.SimpleQueue(), spares=0)


def ask(store: ab.Store, ident: str) -> None:
    until = Micros(store.runtime.clock.now() + 60_000_000)
    with store.catalog.writing(ident) as txn:
        txn.put_state(QUERY_QUESTION, ident, QueryQuestion(ident, "validate", None, "…", {}, until, ()))


def end(pool: DriverPool, driver: Driver) -> None:
    pool.ended(driver, 0.0)  # type: ignore[arg-type]


def look(questions: Questions) -> list[list[str]]:
    """What each driver was asked after the host has looked twice; the first look may only start a driver."""
    questions.look()
    questions.look()
    return [each.asked for each in Driver.started]


def test_a_question_whose_driver_has_ended_is_asked_again(store: ab.Store, pool: DriverPool) -> None:
    questions = Questions(store, pool)
    ask(store, "one")
    assert look(questions) == [["one"]]
    assert look(questions) == [["one"]]  # not twice while the driver may answer
    end(pool, Driver.started[0])
    ask(store, "two")
    assert look(questions) == [["one"], ["one", "two"]]
    for each in open_questions(store.catalog, store.runtime.clock.now()):
        answer(store.catalog, each, lambda: {"error": "no"})
    end(pool, Driver.started[1])
    assert look(questions) == [["one"], ["one", "two"]]
    assert not questions.pending


def test_a_question_that_ends_its_drivers_is_asked_twice_only(store: ab.Store, pool: DriverPool) -> None:
    questions = Questions(store, pool)
    ask(store, "deadly")
    for _ in range(4):
        look(questions)
        end(pool, Driver.started[-1])
    assert [each.asked for each in Driver.started] == [["deadly"], ["deadly"]]
