"""Random lives of many streams against lists, from fixed seeds (`./dev sim algebra` runs others, and longer ones): whatever
is done with them, each stream reads what the model says, every pointer ever handed out means what it meant, and collection
takes what nobody sees and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from anabranch.core.cuts import head_cut
from anabranch.core.stitch import JoinResult
from anabranch.model.pointer import EventPointer
from anabranch.model.stream_range import StreamRange
from anabranch.store import Store
from anabranch.streams.manager import Streams
from tests.simulation import __main__ as sim
from tests.simulation.algebra_command import VERBS, live

LIVES = [(2, 75), (3, 75), (5, 75)]


def test_streams_equal_lists() -> None:
    life = live(2, 20)
    assert life.error is None, "\n".join([*life.trace[-20:], repr(life.error), f"replay it with: {life.replay}"])
    assert life.done.total() >= 20


@pytest.mark.slow
def test_streams_equal_lists_in_random_runs() -> None:
    done: Counter[str] = Counter()
    for seed, steps in LIVES:
        life = live(seed, steps)
        assert life.error is None, "\n".join([*life.trace[-20:], repr(life.error), f"replay it with: {life.replay}"])
        done.update(life.done)
    assert set(VERBS) <= set(done), "these lives never see some of the verbs: take other seeds"
    assert done["span flattened"]


def test_one_seed_gives_one_run() -> None:
    first, second = live(7, 8), live(7, 8)
    assert first.error is None
    assert first.done == second.done
    assert [line.split(":")[0] for line in first.trace] == [line.split(":")[0] for line in second.trace]


# A check that can't fail proves nothing: each of these breaks a promise, and must be found.


def collect_nothing(store: Store, **_: Any) -> None:
    """The collector leaves everything."""


def collect_too_much(store: Store, **_: Any) -> None:
    """The collector takes a blob that streams still see."""
    for info in [*store.blobs.list("commits/"), *store.blobs.list("history/")]:
        store.blobs.delete(info.key)


def truncate_nothing(streams: Streams, *_: Any, **__: Any) -> None:
    """The head does not move."""


def append_nothing(streams: Streams, source: Any, onto: Any, **_: Any) -> Any:
    """An append of an empty range instead."""
    head = head_cut(streams.view(onto))
    return APPEND(streams, StreamRange(onto, head, head), onto)


def forget_a_place(self: JoinResult, old: EventPointer) -> tuple[EventPointer, ...]:
    """The answer lacks where one of the events lies now."""
    return () if old.offset == 1 else POINTERS(self, old)


APPEND = Streams.append
POINTERS = JoinResult.pointers
WOUNDS = [
    (Store, "collect", collect_nothing, 1, 15),
    (Store, "collect", collect_too_much, 4, 15),
    (Streams, "truncate", truncate_nothing, 3, 15),
    (Streams, "append", append_nothing, 7, 15),
    (JoinResult, "pointers", forget_a_place, 3, 15),
]


@pytest.mark.parametrize(("owner", "verb", "wound", "seed", "steps"), WOUNDS, ids=[each[2].__name__ for each in WOUNDS])
def test_a_violation_is_found_and_prints_how_to_repeat_it(
    owner: type,
    verb: str,
    wound: Any,
    seed: int,
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(owner, verb, wound)
    assert sim.main(["algebra", "--seed", str(seed), "--steps", str(steps), "--runs", "3"]) == 1
    shown = capsys.readouterr()
    assert "VIOLATION with seed" in shown.out
    assert "./dev sim algebra --seed" in shown.out
