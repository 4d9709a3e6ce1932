"""Updates of shared state in turn: nobody comes between, and what is lost on the way counts once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.catalog.port import StreamTail, Subject, Writing
from anabranch.errors import AppendUncertain, ConditionFailed, StoreBusy
from anabranch.model.append import Part
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.shared_state.synchronizer import JsonCodec, StateSynchronizer
from anabranch.store import Store
from tests.clocks import runtime_by
from tests.store.helpers import ANYWHERE, store_at
from tests.waiting import until_ended


@pytest.fixture(params=ANYWHERE)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        yield store


def test_an_optimistic_update_waits_for_one_under_the_lock(store: Store) -> None:
    state = store.shared.synchronizer("s/_n", initial=0)
    rival = store.shared.revisioned(state.stream.name)
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
def test_an_update_under_the_lock_of_unknown_outcome_is_notified_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    writing = store.catalog.writing
    lost: list[bool] = []

    class Undone(Exception):
        pass

    @contextmanager
    def lossy(on: Subject | None = None) -> Iterator[Writing]:
        losing = isinstance(on, StreamTail) and not lost
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

    stream = store.shared.revisioned("s/_n")
    state = StateSynchronizer(stream, Runtime(), JsonCodec(), 0, changes_of=lambda _, n: [("counted", {"to": n})])
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


def test_an_update_that_loses_all_races_raises_store_busy(store: Store) -> None:
    """With an update that is a part of somebody else's unit, which takes no turn."""
    clock, rival = Jumping(), store.shared.revisioned("s/_n")
    state = StateSynchronizer(store.shared.revisioned("s/_n"), runtime_by(clock), JsonCodec(), 0)
    turns: list[int] = []

    def overtaken(part: Part) -> None:
        turns.append(rival.append(b"%d" % len(turns)))
        clock.hours += len(turns) == 4
        assert len(turns) < 9, "it goes on for ever"
        raise ConditionFailed(turns[-1] - 1, turns[-1])

    with pytest.raises(StoreBusy, match="lost to concurrent updates"):
        state.update_within(lambda n: n + 10, overtaken)
    assert turns == [2, 3, 4, 5]
    assert state.update(lambda n: n + 10) == 13
