"""What a store offers to those who want to hear of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.cuts import head_cut
from anabranch.core.notifications import PRESENT, GroupPicture, Notification
from anabranch.errors import Truncated
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import OWN_SCOPE, StreamName
from anabranch.model.retention import Retention
from anabranch.readers.notifications.bookmark import Bookmark, Told, forget
from anabranch.readers.notifications.follow import Notifications, Translate
from anabranch.readers.notifications.group import GroupFold
from anabranch.readers.notifications.journal import COLUMNS, NAME, Journal
from anabranch.readers.notifications.listen import Handle, Remember, Subscription
from anabranch.readers.place import Place
from anabranch.readers.reader import Reader
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams

# Says what there is now, up to the change of this id, at this time.
First: TypeAlias = Callable[[int, Micros], Sequence[Notification]]


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
        With `follow` it waits for more; a stream that is followed from the TAIL begins with its present state: the kind is
        `present`, `segments` how many it has, `detail` its `epoch`, `head` and whether it is `sealed`. A stream is followed
        by its id, so also when it is renamed. Raises StreamNotFound.
        """
        store = cast(_Parts, self)
        store._alive()
        ident = None if stream is None else store.streams.get(stream).id
        if ident is not None and follow and start in (TAIL, "tail"):
            source = _present_first(store, *_of_stream(store, ident), on_close=store._forget)
        else:
            source = _open(
                store,
                start=start,
                follow=follow,
                translate=_behind(after, ident),
                on_close=store._forget,
            )
        store._keep(source)
        return source

    def on_notification(
        self, handle: Handle, stream: str | StreamName | None = None, *, start: Place = TAIL, name: str | None = None
    ) -> Subscription:
        """Have `handle` called with each `Notification` of a stream, or with None of all streams and reader groups. From
        the TAIL on, a listener to a stream is first told of its present state; see `notifications`, also for other places
        to `start` from. Calling what is returned ends it.

        A listener with a `name` goes on where the last one of that name stopped, in whichever process: `start` counts for
        the first one alone. It is told of each change at least once, twice only if its process was killed, or its name taken
        over, while it was being told. One process at a time has a name, the last that took it. Raises StreamNotFound, InvalidArgument for a name
        that listens to another stream.
        """
        store = cast(_Parts, self)
        store._alive()
        ident = None if stream is None else store.streams.get(stream).id
        if name is None:
            return _subscribe(store, handle, _from_place(store, ident, start))
        bookmark = Bookmark(store.catalog, store.runtime, name, ident)
        return _subscribe_named(store, handle, ident, start, bookmark)

    def forget_listener(self, name: str) -> None:
        """Let the next listener of this name begin anew; one that is at work ends. Unknown names are ignored."""
        store = cast(_Parts, self)
        store._alive()
        forget(store.catalog, name)

    def _listen(self, picture: Callable[[], GroupPicture], kind: str, handle: Handle, name: str | None) -> Subscription:
        """See `readers.notifications.group.Listen`."""
        store = cast(_Parts, self)
        store._alive()
        if name is None:
            fold = GroupFold(picture, kind)
            return _subscribe(store, handle, _present_first(store, fold.first, fold.translate))
        return _subscribe_to_group(store, handle, picture, kind, name)

    def _note_changes(self) -> None:
        """Note down what the outbox holds before the collector lets go of it, where somebody wants to know."""
        journal = cast(_Parts, self)._journal
        if journal.begun():
            journal.advance()

    def freshen(self, stream: str | StreamName) -> None:
        """To be called ahead of a read that is not made by `Store.reader`, as Spark's and SQL's are: all that happened until
        now stands on the stream `_store/notifications` then, if that is the one; who reads it is the first to ask, where nobody
        did before. For others it does nothing."""
        if StreamName.parse(stream) == NAME:
            cast(_Parts, self)._journal.advance()


def make_journal(store: Any) -> Journal:
    """The journal of a store."""

    def ensure() -> StreamId:
        streams: Streams = store.streams
        streams.create_scope(OWN_SCOPE, exist_ok=True)
        kept = Retention(age_us=limits.NOTIFICATIONS_KEPT_US)
        made = streams.create(NAME, schema=COLUMNS, key="stream", time="at", retention=kept, exist_ok=True)
        return made.id

    return Journal(store.catalog, store.runtime, ensure=ensure, committed=store._tail.notify)


def _open(
    store: _Parts,
    *,
    start: Place,
    follow: bool,
    translate: Translate,
    on_close: Callable[[Notifications], None] | None = None,
) -> Notifications:
    if not follow:
        store._journal.advance()
    stream = store._journal.stream()
    reader = Reader(store.catalog, store._logs, store._tail, store.runtime, stream, start=start, follow=follow)
    return Notifications(
        store._journal, reader, store._tail, store.runtime, translate=translate, follow=follow, on_close=on_close
    )


def _present_first(
    store: _Parts,
    first: First,
    translate: Translate,
    on_close: Callable[[Notifications], None] | None = None,
) -> Notifications:
    """Follow, beginning with what `first` says of the present, given the id up to which that goes."""
    position = 0

    # Opened before the present state is looked at, so nothing lies in between. What that shows already is left out.
    source = _open(
        store,
        start=TAIL,
        follow=True,
        translate=lambda each: translate(each) if each.id > position else (),
        on_close=on_close,
    )
    try:
        while True:
            position = source.begun_behind = store._journal.advance()
            present = first(position, store.runtime.clock.now())
            if store._journal.complete(position):
                break  # else something changed meanwhile, and nobody knows whether it was seen
    except BaseException:
        source.close()
        raise
    source.begin_with(present)
    return source


def _from_place(store: _Parts, stream: StreamId | None, start: Place) -> Notifications:
    """Follow a stream, or all, from a place on; from the tail beginning with the present state."""
    if start not in (TAIL, "tail"):
        return _open(store, start=start, follow=True, translate=_behind(0, stream))
    if stream is None:
        return _present_first(store, lambda position, at: (), lambda each: (each,))
    return _present_first(store, *_of_stream(store, stream))


def _subscribe(
    store: _Parts,
    handle: Handle,
    source: Notifications,
    remember: Remember | None = None,
    missed: Truncated | None = None,
) -> Subscription:
    subscription = Subscription(handle, source, store.runtime, on_close=store._forget, remember=remember)
    store._keep(subscription)
    if missed is not None:
        subscription.missed(missed)
    subscription.start()
    return subscription


def _subscribe_named(
    store: _Parts, handle: Handle, stream: StreamId | None, start: Place, bookmark: Bookmark
) -> Subscription:
    told, missed = bookmark.take(), None
    if told is None:
        source = _from_place(store, stream, start)
        if stream is None or start not in (TAIL, "tail"):
            # Nothing is delivered at once, so the place must be known without. It stands before all that is wanted.
            bookmark.keep(Told(source.begun_behind, source.place))
    else:
        source, missed = _reopen(store, told, _behind(told.id, stream))
    remember = Remember(bookmark.check, lambda each: bookmark.keep(Told(each.id, source.place)))
    return _subscribe(store, handle, source, remember, missed)


def _subscribe_to_group(
    store: _Parts, handle: Handle, look: Callable[[], GroupPicture], kind: str, name: str
) -> Subscription:
    present = look()
    bookmark = Bookmark(store.catalog, store.runtime, name, None, group=f"{kind} of {present.group}")
    told, missed = bookmark.take(), None
    source: Notifications | None = None
    if told is not None and told.picture is not None and told.picture.segments.keys() == present.segments.keys():
        ident, fold = told.id, GroupFold(look, kind, behind=told.picture, remembers=True)
        source, missed = _reopen(store, told, lambda each: fold.translate(each) if each.id > ident else ())
        if missed is not None or told.cut.stream != source.place.stream:
            source.close()  # what is known of the group can't be worked out over a gap
            source = None
    if source is None:
        fold = GroupFold(look, kind, remembers=True)
        source = _present_first(store, fold.first, fold.translate)
        if not fold.telling:  # else its place is noted behind what it is told of the present
            bookmark.keep(Told(source.begun_behind, source.place, fold.now))
    followed = source

    def keep(each: Notification) -> None:
        bookmark.keep(Told(each.id, followed.place, fold.behind(each.id)))

    return _subscribe(store, handle, source, Remember(bookmark.check, keep), missed)


def _reopen(store: _Parts, told: Told, translate: Translate) -> tuple[Notifications, Truncated | None]:
    """Follow behind what a listener was told last. What the retention let go of meanwhile is an error beside it."""
    if told.cut.stream != store._journal.stream():  # somebody deleted that one, and what it held
        return _open(store, start=HEAD, follow=True, translate=translate), None
    try:
        return _open(store, start=told.cut, follow=True, translate=translate), None
    except Truncated as exc:
        return _open(store, start=HEAD, follow=True, translate=translate), exc


def _behind(after: int, stream: StreamId | None) -> Translate:
    """Those behind an id that concern a stream, or with None all."""
    return lambda each: (each,) if each.id > after and stream in (None, each.stream_id) else ()


def _of_stream(store: _Parts, stream: StreamId) -> tuple[First, Translate]:
    """What a listener to one stream gets."""

    def first(position: int, at: Micros) -> Sequence[Notification]:
        view = store.streams.view(stream)
        detail = {"epoch": view.info.epoch, "head": str(head_cut(view)), "sealed": view.info.sealed}
        count = len(view.current)
        return (Notification(position, at, PRESENT, str(view.info.name), stream, segments=count, detail=detail),)

    return first, lambda each: (each,) if each.stream_id == stream else ()
