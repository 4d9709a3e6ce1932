"""Notifications: every change is delivered once, in the order of the changes, to every reader, follower and
listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from anabranch.errors import AppendUncertain, Closed, StoreUnavailable
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import StreamId
from anabranch.notifications.kinds import Notification
from tests.simulation.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["change", "listen"]

_KINDS: Final = ("created", "scaled", "sealed", "deleted")
_END_S: Final = 0.5  # virtual seconds without notifications, after which a follower is up to date


@dataclass
class _News:
    """What all clients that change and listen share. `made` has, by stream, the kinds of the changes that were
    requested since all are delivered, and whether each was answered; `heard` what single listeners were called with."""

    made: dict[StreamId, list[tuple[str, bool]]] = field(default_factory=dict)
    heard: list[Sequence[int]] = field(default_factory=list)


def change(arena: Arena, store: Store, name: str) -> None:
    """Creates streams and changes them in all ways."""
    news = _news(arena)
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED):
            with store.notifications.read():  # all changes from the first reader on are delivered
                pass
            _live(arena, store, news)
            arena.done["life to tell of"] += 1


def _live(arena: Arena, store: Store, news: _News) -> None:
    stream = f"sim/news{arena.serial()}"
    made = news.made[store.streams.create(stream, scaling=2).id] = [("created", True)]
    for _ in range(arena.rng.randrange(0, 4)):
        first = store.streams.view(stream).current[0].id
        _made(made, "scaled", lambda first=first: store.streams.scale(stream, split=first))  # type: ignore[misc]
    if arena.chance(0.5):
        _made(made, "sealed", lambda: store.streams.seal(stream))
    if arena.chance(0.5):
        _made(made, "deleted", lambda: store.streams.delete(stream))


def listen(arena: Arena, store: Store, name: str) -> None:
    """Reads all notifications, follows them, or registers a listener."""
    news = _news(arena)
    for _ in arena.turns(store, 10):
        with suppress(*EXPECTED, Closed):
            draw = arena.rng.random()
            if draw < 0.3:
                with store.notifications.read() as source:
                    _check(arena, name, [each.id for each in source])
            elif draw < 0.7:
                _follow(arena, store, news, name)
            else:
                _subscribe(arena, store, news, name)
            arena.done["listener"] += 1


def _news(arena: Arena) -> _News:
    made = _News()
    news = arena.shared("news", lambda: made)
    arena.promises["news are told once and in order"] = partial(_told, news)
    return news


def _made(made: list[tuple[str, bool]], kind: str, act: Callable[[], object]) -> None:
    """Makes a change; if its answer is lost, it may have been made."""
    made.append((kind, False))
    act()
    made[-1] = (kind, True)


def _follow(arena: Arena, store: Store, news: _News, name: str) -> None:
    start = arena.rng.choice((HEAD, TAIL))
    heard: list[int] = []
    with store.notifications.read(start=start, follow=True) as source:
        news.heard.append(heard)
        for _ in range(arena.rng.randrange(1, 40)):
            found = source.next(timeout_s=_END_S)
            if found is None and arena.stopping:
                break
            if found is not None:
                heard.append(found.id)
    _check(arena, name, heard)


def _subscribe(arena: Arena, store: Store, news: _News, name: str) -> None:
    heard: list[int] = []

    def handle(each: Notification) -> None:
        heard.append(each.id)
        store.runtime.tasks.sleep(arena.rng.random() * 0.01)

    subscription = store.notifications.listen(handle)
    news.heard.append(heard)
    store.runtime.tasks.sleep(arena.rng.random())
    subscription.close()
    _check(arena, name, heard)
    if subscription.failure is not None and not isinstance(subscription.failure, (AppendUncertain, StoreUnavailable)):
        arena.violations.append(f"listener {name} failed: {subscription.failure!r}")


def _check(arena: Arena, name: str, ids: Sequence[int]) -> None:
    if any(later <= before for before, later in pairwise(ids)):
        arena.violations.append(f"listener {name} was told of changes twice or out of order: {ids}")
    arena.done["notification heard"] += len(ids)


def _told(news: _News, store: Store) -> Sequence[str]:
    """The journal has every change once; each listener got all between its first and its last."""
    with store.notifications.read() as source:
        told = list(source)
    ids = [each.id for each in told]
    wrong = [] if ids == sorted(set(ids)) else [f"changes are told twice or out of order: {ids}"]
    for stream, made in news.made.items():
        kinds = [each.kind for each in told if each.stream_id == stream and each.kind in _KINDS]
        if not _explained(kinds, made):
            wrong.append(f"of stream {stream:016x} {kinds} is told, and these changes were made: {made}")
    wrong += [
        f"a listener heard {heard}, and these are told: {ids}"
        for heard in news.heard
        if heard and [each for each in ids if heard[0] <= each <= heard[-1]] != list(heard)
    ]
    return wrong[:5]


def _explained(kinds: Sequence[str], made: Sequence[tuple[str, bool]]) -> bool:
    """True if these are the changes that were made, with or without those of unknown outcome."""
    if not made:
        return not kinds
    (kind, certain), rest = made[0], made[1:]
    taken = bool(kinds) and kinds[0] == kind and _explained(kinds[1:], rest)
    return taken or (not certain and _explained(kinds, rest))
