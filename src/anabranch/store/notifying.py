"""What a store offers to those who want to hear of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.cuts import head_cut
from anabranch.core.notifications import PRESENT, GroupPicture, Notification, step
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.retention import Retention
from anabranch.model.stream import StreamView
from anabranch.readers.notifications.follow import Notifications
from anabranch.readers.notifications.journal import COLUMNS, NAME, SCOPE, Journal
from anabranch.readers.notifications.listen import Handle, Subscription
from anabranch.readers.place import Place
from anabranch.readers.reader import Reader
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams


class _Parts(Protocol):
    """What of a store the calls below are made of."""

    catalog: Catalog
    runtime: Runtime
    streams: Streams
    _logs: LogReader
    _tail: Tail
    _journal: Journal

    def _alive(self) -> None: ...
    def _keep(self, each: Any) -> None: ...
    def _forget(self, each: Any) -> None: ...


class Notifying:
    """The part of `Store` that tells of changes."""

    def notifications(
        self,
        stream: str | StreamName | None = None,
        *,
        start: Place = HEAD,
        after: int = 0,
        follow: bool = False,
    ) -> Notifications:
        """What happened to a stream, or with None to all streams and reader groups, to be iterated over as `Notification`s.

        They are kept on the stream `_store/notifications` from the first time that anybody asks for them; the changes of
        the last week before that are there too. `start` is HEAD, TAIL or a time; `after` leaves out those up to an id.
        With `follow` it waits for more. A stream is followed by its id, so also when it is renamed. Raises
        StreamNotFound.
        """
        store = cast(_Parts, self)
        store._alive()
        ident = None if stream is None else store.streams.get(stream).id
        source = _open(
            store,
            start=start,
            follow=follow,
            wanted=lambda each: each.id > after and (ident is None or each.stream_id == ident),
            on_close=store._forget,
        )
        store._keep(source)
        return source

    def on_notification(self, handle: Handle, stream: str | StreamName | None = None) -> Subscription:
        """Have `handle` called with each `Notification` of a stream, or with None of all streams and reader groups.

        A listener to a stream is first told of the present state: the kind is `present`, `segments` how many it has,
        `detail` its `epoch`, `head` and whether it is `sealed`. Calling what is returned ends it. Raises StreamNotFound.
        """
        store = cast(_Parts, self)
        store._alive()
        ident = None if stream is None else store.streams.get(stream).id

        def first(position: int, at: Micros) -> Sequence[Notification]:
            return () if ident is None else (_present(store.streams.view(ident), position, at),)

        def translate(each: Notification) -> Iterable[Notification]:
            return (each,) if ident is None or each.stream_id == ident else ()

        return _subscribe(store, handle, first, translate)

    def _listen(self, picture: Callable[[], GroupPicture], kind: str, handle: Handle) -> Subscription:
        """See `readers.notifications.group.Listen`."""
        store = cast(_Parts, self)
        store._alive()
        now: GroupPicture | None = None

        def first(position: int, at: Micros) -> Sequence[Notification]:
            nonlocal now
            now = picture()
            return [each for each in now.present(position, at) if each.kind == kind]

        def translate(each: Notification) -> Iterable[Notification]:
            nonlocal now
            assert now is not None, "the present state is looked at first"
            now, told = step(now, each)
            return [one for one in told if one.kind == kind]

        return _subscribe(store, handle, first, translate)

    def _note_changes(self) -> None:
        """Note down what the outbox holds before the collector lets go of it, where somebody wants to know."""
        journal = cast(_Parts, self)._journal
        if journal.begun():
            journal.advance()


def make_journal(store: Any) -> Journal:
    """The journal of a store."""

    def ensure() -> StreamId:
        streams: Streams = store.streams
        streams.create_scope(SCOPE, exist_ok=True)
        kept = Retention(age_us=limits.NOTIFICATIONS_KEPT_US)
        made = streams.create(NAME, schema=COLUMNS, key="stream", time="at", retention=kept, exist_ok=True)
        return made.id

    return Journal(store.catalog, store.runtime, ensure=ensure, committed=store._tail.notify)


def _open(
    store: _Parts,
    *,
    start: Place,
    follow: bool,
    wanted: Callable[[Notification], bool],
    on_close: Callable[[Notifications], None] | None = None,
) -> Notifications:
    if start is not TAIL or not follow:
        store._journal.advance()
    stream = store._journal.stream()
    reader = Reader(store.catalog, store._logs, store._tail, store.runtime, stream, start=start, follow=follow)
    return Notifications(
        store._journal, reader, store._tail, store.runtime, wanted=wanted, follow=follow, on_close=on_close
    )


def _subscribe(
    store: _Parts,
    handle: Handle,
    first: Callable[[int, Micros], Sequence[Notification]],
    translate: Callable[[Notification], Iterable[Notification]],
) -> Subscription:
    # Opened before the present state is looked at, so nothing lies in between. What it already shows is left out.
    position = 0
    source = _open(store, start=TAIL, follow=True, wanted=lambda each: each.id > position)
    try:
        while True:
            position = store._journal.advance()
            present = first(position, store.runtime.clock.now())
            if store._journal.complete(position):
                break  # else something changed meanwhile, and nobody knows whether it was seen
    except BaseException:
        source.close()
        raise
    subscription = Subscription(
        handle, source, store.runtime, first=present, translate=translate, on_close=store._forget
    )
    store._keep(subscription)
    subscription.start()
    return subscription


def _present(view: StreamView, position: int, at: Micros) -> Notification:
    detail = {"epoch": view.info.epoch, "head": str(head_cut(view)), "sealed": view.info.sealed}
    return Notification(
        position, at, PRESENT, str(view.info.name), view.info.id, segments=len(view.current), detail=detail
    )
