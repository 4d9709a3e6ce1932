"""Updates of shared state in turn: nobody comes between, and what is lost on the way counts once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.catalog.port import StreamEnd, Subject, Writing
from anabranch.errors import AppendUncertain, ConditionFailed, StoreBusy
from anabranch.model.append import Part
from anabranch.readers.synchronizer import JsonCodec, StateSynchronizer
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, store_at
from tests.waiting import until_ended


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        yield store


def test_who_takes_no_turn_waits_for_the_end_of_one(store: Store) -> None:
    state = store.synchronizer("s/_n", initial=0)
    rival = store.revisioned(state.stream.name)
    made: list[int] = []
    appending = threading.Thread(target=lambda: made.append(rival.append(b"100")))
    seen: list[int] = []

    def add(n: int) -> int:
        if not seen:
            appending.start()
            appending.join(0.5)  # it would be done by then if it could
        seen.append(n)
        return n + 1

    state._contended = True
    assert state.update(add) == 1
    until_ended(appending)
    assert (seen, state.revision, made) == ([0], 2, [3])
    assert state.fetch() == 100


@pytest.mark.parametrize("landed", [True, False])
def test_an_update_in_its_turn_whose_answer_was_lost_is_told_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    writing = store.catalog.writing
    lost: list[bool] = []

    class Undone(Exception):
        pass

    @contextmanager
    def lossy(on: Subject | None = None) -> Iterator[Writing]:
        losing = isinstance(on, StreamEnd) and not lost
        try:
            with writing(on) as txn:
                yield txn
                if losing and not landed:
                    raise Undone
        except Undone:
            pass
        if losing:
            lost.append(True)
            raise AppendUncertain

    stream = store.revisioned("s/_n")
    state = StateSynchronizer(stream, Runtime(), JsonCodec(), 0, told=lambda _, n: [("counted", {"to": n})])
    state._contended = True
    monkeypatch.setattr(store.catalog, "writing", lossy)
    assert state.update(lambda n: n + 1) == 1
    assert lost and stream.latest() == 2
    with store.catalog.reading() as reading:
        told = [change.detail for change in reading.changes(0, 100) if change.kind == "counted"]
    assert told == [{"to": 1}]


class Jumping(SystemClock):
    """A clock on which an hour can pass at once."""

    hours = 0

    def monotonic(self) -> float:
        return super().monotonic() + 3600 * self.hours


def test_who_is_never_first_gives_up_after_the_time_that_it_waits_for_a_lock(store: Store) -> None:
    """With an update that is a part of somebody else's unit, which takes no turn."""
    clock, rival = Jumping(), store.revisioned("s/_n")
    state = StateSynchronizer(store.revisioned("s/_n"), Runtime(clock=clock), JsonCodec(), 0)
    turns: list[int] = []

    def overtaken(part: Part) -> None:
        turns.append(rival.append(b"%d" % len(turns)))
        clock.hours += len(turns) == 4
        assert len(turns) < 9, "it goes on for ever"
        raise ConditionFailed(turns[-1] - 1, turns[-1])

    with pytest.raises(StoreBusy, match="so often"):
        state.update_within(lambda n: n + 10, overtaken)
    assert turns == [2, 3, 4, 5]
    assert state.update(lambda n: n + 10) == 13
