"""Listeners with a name, and those to reader groups: of each change they are told once, again only of what they were at when
their process was killed, and of nothing never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.core.notifications import END_OF_DATA, READERS, SCALED, SEGMENTS, TRUNCATED, GroupPicture, Notification
from anabranch.errors import NotFound, ReaderNotInGroup
from anabranch.model.cut import HEAD
from anabranch.model.ids import StreamId
from anabranch.readers.notifications.listen import Handle, Subscription
from anabranch.testing.clients.arena import EXPECTED, Arena
from anabranch.testing.listening import Due, Life, due_to_group

if TYPE_CHECKING:
    from anabranch.readers.group.group import ReaderGroup
    from anabranch.store import Store

__all__ = ["attend", "perform"]

_KINDS: Final = (SEGMENTS, READERS, END_OF_DATA, SCALED, TRUNCATED)
_NAMES: Final = ("dash", "log")  # of listeners to all that happens
_SEGMENTS: Final = 2  # of a stream in the beginning
_LEASE_S: Final = limits.READER_LEASE_US_MIN / 1e6
_RECENT: Final = 3  # of the last scenes, to one of which somebody listens
_QUIET_S: Final = 0.4  # virtual seconds without news, after which a listener has heard all
_RETRIES: Final = 20  # waits for that
_CHANGES_MAX: Final = 100_000


@dataclass
class _Scene:
    """A group of one stream, and who listened to it: by kind those without a name, and those that share one."""

    group: str
    stream: StreamId
    alone: dict[str, list[Life]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})
    named: dict[str, list[Life]] = field(default_factory=dict)  # by kind: the name is made of that


@dataclass
class _Told:
    """All scenes, and the lives of those that listen to everything by a name."""

    scenes: list[_Scene] = field(default_factory=list)
    named: dict[str, list[Life]] = field(default_factory=dict)


def perform(arena: Arena, store: Store, name: str) -> None:
    """Make groups, and take their streams and readers through all that is told of them."""
    told = _told(arena)
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED, NotFound, ReaderNotInGroup):
            with store.notifications():  # from the first reader on, all changes are told
                pass
            label = f"sim/scene{arena.serial()}"
            stream = store.streams.create(label, scaling=_SEGMENTS).id
            group = store.reader_group(f"{label}-group", streams=[label], lease_s=_LEASE_S)
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
            store.streams.truncate(stream, store.streams.tail(stream))
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
    """Listen for a while to all that happens, by a name, or to a group, with a name or without."""
    told = _told(arena)
    for _ in arena.turns(store, 6):
        with suppress(*EXPECTED, NotFound):
            if not told.scenes or arena.chance(0.4):
                called = arena.rng.choice(_NAMES)
                lives = told.named.setdefault(called, [Life(since=0)])
                _live(arena, store, lives, _by_name(store, called), arena.rng.random())
            else:
                _attend_group(arena, store, arena.rng.choice(told.scenes[-_RECENT:]))


def _attend_group(arena: Arena, store: Store, scene: _Scene) -> None:
    kind = arena.rng.choice(_KINDS)
    if arena.chance(0.5):
        lives, called = scene.named.setdefault(kind, []), f"{scene.group} {kind}"
    else:
        lives, called = scene.alone[kind], None
    _live(arena, store, lives, _to_group(store, scene, kind, called), arena.rng.random())


def _by_name(store: Store, name: str) -> Callable[[Handle], Subscription]:
    return lambda handle: store.on_notification(handle, start=HEAD, name=name)


def _to_group(store: Store, scene: _Scene, kind: str, name: str | None) -> Callable[[Handle], Subscription]:
    group = store.reader_group(scene.group)
    listen = {
        SEGMENTS: group.on_segments,
        READERS: group.on_readers,
        END_OF_DATA: group.on_end_of_data,
        SCALED: group.on_scaling,
        TRUNCATED: group.on_truncation,
    }[kind]
    return lambda handle: listen(handle, name=name)


def _live(
    arena: Arena, store: Store, lives: list[Life], listen: Callable[[Handle], Subscription], seconds: float
) -> None:
    """A listener for so long; what it is told stays known when its process is killed."""
    life = Life()
    lives.append(life)
    arena.done["listener"] += 1

    def handle(each: Notification) -> None:
        life.heard.append(each)
        arena.done["told to a listener"] += 1
        store.runtime.tasks.sleep(arena.rng.random() * 0.01)
        if arena.chance(0.03):
            life.raised += 1
            raise RuntimeError("a listener that fails harms nobody")

    subscription = listen(handle)
    life.failures = lambda: subscription.failures
    life.since = _newest(store)
    store.runtime.tasks.sleep(seconds)
    subscription.close()
    life.orderly = True


def _newest(store: Store) -> int:
    """The newest change there is."""
    with store.catalog.reading() as reading:
        return max((change.sequence for change in reading.changes(0, _CHANGES_MAX)), default=0)


def _told(arena: Arena) -> _Told:
    made = _Told()
    told = arena.shared("told", lambda: made)
    arena.promises["listeners are told of everything, once"] = partial(_once, arena, told)
    return told


def _once(arena: Arena, told: _Told, store: Store) -> Sequence[str]:
    """A last life of each name hears the rest; then all are held against the journal."""
    for name, lives in told.named.items():
        _rest(arena, store, lives, _by_name(store, name))
    for scene in told.scenes:
        for kind, lives in scene.named.items():
            _rest(arena, store, lives, _to_group(store, scene, kind, f"{scene.group} {kind}"))
    with store.notifications() as source:
        journal = list(source)
    wrong = []
    for lives in told.named.values():
        wrong += Due(None, journal).wrong_in_name(lives, done=True)
    for scene in told.scenes:
        begun = GroupPicture(scene.group, {scene.stream: _SEGMENTS})
        for kind in _KINDS:
            due = due_to_group(journal, begun, kind)
            wrong += [text for life in scene.alone[kind] for text in due.wrong_in(life)]
            wrong += due.wrong_in_name(scene.named.get(kind, []), done=kind in scene.named)
    return wrong[:5]


def _rest(arena: Arena, store: Store, lives: list[Life], listen: Callable[[Handle], Subscription]) -> None:
    life = Life(orderly=True)
    lives.append(life)
    subscription = listen(life.heard.append)
    life.failures = lambda: subscription.failures
    for _ in range(_RETRIES):
        before = len(life.heard)
        store.runtime.tasks.sleep(_QUIET_S)
        if len(life.heard) == before:
            break
    subscription.close()
