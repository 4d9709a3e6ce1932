"""Named listeners, and listeners to reader groups: each is called once for each change; again only for changes that
were being handled when its process was killed; and no change is skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.catalog.state.listener import GroupSummary
from anabranch.errors import NotFound, ReaderNotInGroup
from anabranch.model.cut import HEAD
from anabranch.model.ids import StreamId
from anabranch.notifications.kinds import END_OF_DATA, READERS, SCALED, SEGMENTS, TRUNCATED, Notification
from anabranch.notifications.subscription import Handler, Subscription
from tests.simulation.clients.arena import EXPECTED, Arena
from tests.simulation.listening import Due, ListenerRun, due_to_group

if TYPE_CHECKING:
    from anabranch.groups.group import ReaderGroup
    from anabranch.store import Store

__all__ = ["attend", "perform"]

_KINDS: Final = (SEGMENTS, READERS, END_OF_DATA, SCALED, TRUNCATED)
_NAMES: Final = ("dash", "log")  # of listeners to everything
_SEGMENTS: Final = 2  # of a new stream
_LEASE_S: Final = limits.READER_LEASE_US_MIN / 1e6
_RECENT: Final = 3  # listeners choose among this many of the last scenes
_QUIET_S: Final = 0.4  # virtual seconds without notifications, after which a listener is up to date
_RETRIES: Final = 20  # attempts to reach that
_CHANGES_MAX: Final = 100_000


@dataclass
class _Scene:
    """A group of one stream, and its listeners: by kind those without a name, and those that share one."""

    group: str
    stream: StreamId
    alone: dict[str, list[ListenerRun]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    named: dict[str, list[ListenerRun]] = field(default_factory=dict)  # by kind: the name is derived from it


@dataclass
class _Told:
    """All scenes, and the runs of the named listeners to everything."""

    scenes: list[_Scene] = field(default_factory=list)
    named: dict[str, list[ListenerRun]] = field(default_factory=dict)


def perform(arena: Arena, store: Store, name: str) -> None:
    """Creates groups, and changes their streams and readers in all ways that cause notifications."""
    told = _told(arena)
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED, NotFound, ReaderNotInGroup):
            with store.notifications.read():  # all changes from the first reader on are delivered
                pass
            label = f"sim/scene{arena.serial()}"
            stream = store.streams.create(label, scaling=_SEGMENTS).id
            group = store.groups.open(f"{label}-group", streams=[label], lease_s=_LEASE_S)
            told.scenes.append(_Scene(group.name, stream))
            for _ in range(arena.rng.randrange(1, 6)):
                _act(arena, store, label, group)
            arena.done["scene"] += 1


def _act(arena: Arena, store: Store, stream: str, group: ReaderGroup) -> None:
    match arena.rng.randrange(6):
        case 0 | 1:
            store.streams.scale(stream, arena.rng.randrange(1, 4))
        case 2:
            with store.writer(stream) as writer:
                writer.write(b"x", key="k")
            store.streams.truncate(stream, store.cuts.tail(stream))
        case 3 | 4:
            reader = group.reader(arena.rng.choice(("r1", "r2")))
            store.runtime.tasks.sleep(arena.rng.random() * _LEASE_S)
            reader.abandon() if arena.chance(0.3) else reader.close()
        case _:
            store.streams.seal(stream)
            with group.reader("r3") as reader:
                for _ in reader.batches():
                    pass
            arena.done["scene read to its end"] += 1
            if arena.chance(0.3):
                group.rewind()


def attend(arena: Arena, store: Store, name: str) -> None:
    """Listens for a while to everything, by a name, or to a group, with a name or without."""
    told = _told(arena)
    for _ in arena.turns(store, 6):
        with suppress(*EXPECTED, NotFound):
            if not told.scenes or arena.chance(0.4):
                called = arena.rng.choice(_NAMES)
                runs = told.named.setdefault(called, [ListenerRun(since=0)])
                _live(arena, store, runs, _by_name(store, called), arena.rng.random())
            else:
                _attend_group(arena, store, arena.rng.choice(told.scenes[-_RECENT:]))


def _attend_group(arena: Arena, store: Store, scene: _Scene) -> None:
    kind = arena.rng.choice(_KINDS)
    if arena.chance(0.5):
        runs, called = scene.named.setdefault(kind, []), f"{scene.group} {kind}"
    else:
        runs, called = scene.alone[kind], None
    _live(arena, store, runs, _to_group(store, scene, kind, called), arena.rng.random())


def _by_name(store: Store, name: str) -> Callable[[Handler], Subscription]:
    return lambda handle: store.notifications.listen(handle, start=HEAD, name=name)


def _to_group(store: Store, scene: _Scene, kind: str, name: str | None) -> Callable[[Handler], Subscription]:
    group = store.groups.open(scene.group)
    listen = {
        SEGMENTS: group.on_segments,
        READERS: group.on_readers,
        END_OF_DATA: group.on_end_of_data,
        SCALED: group.on_scaling,
        TRUNCATED: group.on_truncation,
    }[kind]
    return lambda handle: listen(handle, name=name)


def _live(
    arena: Arena, store: Store, runs: list[ListenerRun], listen: Callable[[Handler], Subscription], seconds: float
) -> None:
    """Runs a listener for this time; what it was called with stays recorded when its process is killed."""
    run = ListenerRun()
    runs.append(run)
    arena.done["listener"] += 1

    def handle(each: Notification) -> None:
        run.received.append(each)
        arena.done["told to a listener"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * 0.01)
        if arena.chance(0.03):
            run.raised += 1
            raise RuntimeError("a listener that fails harms nobody")

    subscription = listen(handle)
    run.failures = lambda: subscription.failures
    run.since = _newest(store)
    store.runtime.tasks.sleep(seconds)
    subscription.close()
    run.orderly = True


def _newest(store: Store) -> int:
    """Returns the newest change."""
    with store.catalog.reading() as reading:
        return max((change.sequence for change in reading.changes(0, _CHANGES_MAX)), default=0)


def _told(arena: Arena) -> _Told:
    made = _Told()
    told = arena.shared("told", lambda: made)
    arena.promises["listeners are told of everything, once"] = partial(_once, arena, told)
    return told


def _once(arena: Arena, told: _Told, store: Store) -> Sequence[str]:
    """A last listener of each name receives the rest; then all are compared with the journal."""
    for name, runs in told.named.items():
        _rest(arena, store, runs, _by_name(store, name))
    for scene in told.scenes:
        for kind, runs in scene.named.items():
            _rest(arena, store, runs, _to_group(store, scene, kind, f"{scene.group} {kind}"))
    with store.notifications.read() as source:
        journal = list(source)
    wrong = []
    for runs in told.named.values():
        wrong += Due(None, journal).wrong_in_name(runs, done=True)
    for scene in told.scenes:
        begun = GroupSummary(scene.group, {scene.stream: _SEGMENTS})
        for kind in _KINDS:
            due = due_to_group(journal, begun, kind)
            wrong += [text for run in scene.alone[kind] for text in due.wrong_in(run)]
            wrong += due.wrong_in_name(scene.named.get(kind, []), done=kind in scene.named)
    return wrong[:5]


def _rest(arena: Arena, store: Store, runs: list[ListenerRun], listen: Callable[[Handler], Subscription]) -> None:
    run = ListenerRun(orderly=True)
    runs.append(run)
    subscription = listen(run.received.append)
    run.failures = lambda: subscription.failures
    for _ in range(_RETRIES):
        before = len(run.received)
        store.runtime.tasks.sleep(_QUIET_S)
        if len(run.received) == before:
            break
    subscription.close()
