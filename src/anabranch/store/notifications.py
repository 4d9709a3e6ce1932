"""Notifications of a store: reading changes of streams and groups, and listening to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from anabranch import limits
from anabranch.catalog.state.listener import GroupSummary, LastDelivered
from anabranch.core.closeable import closed_on_error
from anabranch.core.cuts import head_cut
from anabranch.core.display import Displayed
from anabranch.errors import Truncated
from anabranch.model.cut import HEAD, TAIL
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import INTERNAL_SCOPE, StreamName
from anabranch.notifications.bookmark import ListenerBookmark, reset_listener
from anabranch.notifications.follow import Notifications, Translate
from anabranch.notifications.group_events import GroupEventFilter
from anabranch.notifications.kinds import PRESENT, Notification
from anabranch.notifications.publisher import COLUMNS, NAME, NotificationPublisher
from anabranch.notifications.subscription import BookmarkCallbacks, Handler, Subscription
from anabranch.reading.bounds import Place
from anabranch.reading.reader import Reader
from anabranch.reading.row_source import ReaderOptions
from anabranch.reading.store_rows import StoreRows
from anabranch.store.parts import StoreContext
from anabranch.streams.manager import Streams
from anabranch.streams.retention.policy import Retention
from anabranch.streams.scopes.api import Scopes

# Given the id of the last change covered and a time, returns the present state as notifications.
First: TypeAlias = Callable[[int, Micros], Sequence[Notification]]


class StoreNotifications(Displayed):
    """Notifications of a store: read what happened to streams and groups, or have a handler called as it happens."""

    def __init__(self, parts: StoreContext, streams: Streams, scopes: Scopes) -> None:
        self._parts = parts
        self._streams = streams
        self._scopes = scopes
        self._publisher = NotificationPublisher(
            parts.catalog, parts.runtime, ensure=self._ensure_stream, on_commit=parts.tail.notify
        )

    def read(
        self,
        stream: str | StreamName | None = None,
        *,
        start: Place = HEAD,
        after: int = 0,
        follow: bool = False,
    ) -> Notifications:
        """Iterate over what happened to a stream, or with None to all streams and reader groups, as `Notification`s.

        Notifications are kept on the stream `_store/notifications` from the first request for notifications on; the
        stream also has the changes of the week before that request. `start` is HEAD, TAIL or a time; `after` leaves out
        those up to an id. With `follow` it waits for more. Following one stream from TAIL begins with its present
        state: the kind is `present`, `segments` its number of segments, `detail` its `epoch`, its `head` and whether it
        is `sealed`. A stream is followed by its id, so a rename does not matter. Raises StreamNotFound.
        """
        self._parts.check_open()
        ident = None if stream is None else self._streams.get(stream).id
        if ident is not None and follow and start in (TAIL, "tail"):
            source = self._present_first(*self._of_stream(ident))
        else:
            source = self._open(start=start, follow=follow, translate=_filter_after(after, ident))
        self._parts.keep(source)
        return source

    def listen(
        self, handle: Handler, stream: str | StreamName | None = None, *, start: Place = TAIL, name: str | None = None
    ) -> Subscription:
        """Call `handle` with each `Notification` of a stream, or with None of all streams and reader groups. From TAIL,
        a listener to one stream first gets its present state; see `read`, also for other values of `start`. To stop
        listening, call the returned subscription.

        A listener with a `name` continues where the last listener of that name stopped, in any process; `start` counts
        only for the first listener of a name. It gets each change at least once, and twice only if its process was
        killed, or its name taken over, while its handler ran. One process at a time owns a name: the last one that took
        it. Raises StreamNotFound, InvalidArgument for a name that listens to another stream.
        """
        self._parts.check_open()
        ident = None if stream is None else self._streams.get(stream).id
        if name is None:
            return self._subscribe(handle, self._from_place(ident, start))
        bookmark = ListenerBookmark(self._parts.catalog, self._parts.runtime, name, ident)
        return self._subscribe_named(handle, ident, start, bookmark)

    def forget_listener(self, name: str) -> None:
        """Let the next listener of this name start over; a running one ends. Unknown names are ignored."""
        self._parts.check_open()
        reset_listener(self._parts.catalog, name)

    def listen_to_group(
        self, load_summary: Callable[[], GroupSummary], kind: str, handle: Handler, name: str | None
    ) -> Subscription:
        """See `notifications.group_events.Listen`."""
        self._parts.check_open()
        if name is None:
            filter_ = GroupEventFilter(load_summary, kind)
            return self._subscribe(handle, self._present_first(filter_.initial, filter_.translate))
        return self._subscribe_to_group(handle, load_summary, kind, name)

    def publish_pending(self) -> None:
        """Publish what the outbox holds before the collector removes it, if notifications were ever requested."""
        publisher = self._publisher
        if publisher.is_enabled():
            publisher.advance()

    def freshen(self, stream: str | StreamName) -> None:
        """Publish all changes so far if `stream` is `_store/notifications`; do nothing for other streams. Call it
        before a read that is not made by `Store.reader`, such as Spark's and SQL's. It counts as the first request for
        notifications if there was none before."""
        if StreamName.parse(stream) == NAME:
            self._publisher.advance()

    def _ensure_stream(self) -> StreamId:
        self._scopes.create(INTERNAL_SCOPE, exist_ok=True)
        kept = Retention(age_us=limits.NOTIFICATIONS_KEPT_US)
        return self._streams.create(NAME, schema=COLUMNS, key="stream", time="at", retention=kept, exist_ok=True).id

    def _open(self, *, start: Place, follow: bool, translate: Translate) -> Notifications:
        if not follow:
            self._publisher.advance()
        stream = self._publisher.stream()
        parts = self._parts
        options = ReaderOptions(start=start, follow=follow)
        rows = StoreRows(parts.catalog, parts.logs, parts.tail, parts.runtime, stream, options)
        return Notifications(
            self._publisher,
            Reader(rows, parts.runtime),
            parts.tail,
            parts.runtime,
            translate=translate,
            follow=follow,
            on_close=parts.forget,
        )

    def _present_first(self, first: First, translate: Translate) -> Notifications:
        """Follow, beginning with the present state that `first` returns for the id up to which it is valid."""
        position = 0

        # Open before reading the present state, so that no change between the two is lost. Changes that the state
        # already includes are left out.
        source = self._open(
            start=TAIL, follow=True, translate=lambda each: translate(each) if each.id > position else ()
        )
        with closed_on_error(source):
            while True:
                position = source.initial_until = self._publisher.advance()
                current = first(position, self._parts.runtime.clock.now())
                if self._publisher.complete(position):
                    break  # else something changed meanwhile, and the state may or may not include it
        source.prepend(current)
        return source

    def _from_place(self, stream: StreamId | None, start: Place) -> Notifications:
        """Follow a stream, or all, from a place; from TAIL beginning with the present state."""
        if start not in (TAIL, "tail"):
            return self._open(start=start, follow=True, translate=_filter_after(0, stream))
        if stream is None:
            return self._present_first(lambda position, at: (), lambda each: (each,))
        return self._present_first(*self._of_stream(stream))

    def _subscribe(
        self,
        handle: Handler,
        source: Notifications,
        bookmark_callbacks: BookmarkCallbacks | None = None,
        missed: Truncated | None = None,
    ) -> Subscription:
        subscription = Subscription(
            handle, source, self._parts.runtime, on_close=self._parts.forget, bookmark=bookmark_callbacks
        )
        self._parts.keep(subscription)
        if missed is not None:
            subscription.report_missed(missed)
        subscription.start()
        return subscription

    def _subscribe_named(
        self, handle: Handler, stream: StreamId | None, start: Place, bookmark: ListenerBookmark
    ) -> Subscription:
        last, missed = bookmark.take_over(), None
        if last is None:
            source = self._from_place(stream, start)
            if stream is None or start not in (TAIL, "tail"):
                # Nothing is delivered yet, so record the start position: this listener's notifications follow it.
                bookmark.save(LastDelivered(source.initial_until, source.position))
        else:
            source, missed = self._reopen(last, _filter_after(last.id, stream))
        bookmark_callbacks = BookmarkCallbacks(
            bookmark.check, lambda each: bookmark.save(LastDelivered(each.id, source.position))
        )
        return self._subscribe(handle, source, bookmark_callbacks, missed)

    def _subscribe_to_group(
        self, handle: Handler, load_summary: Callable[[], GroupSummary], kind: str, name: str
    ) -> Subscription:
        current = load_summary()
        bookmark = ListenerBookmark(
            self._parts.catalog, self._parts.runtime, name, None, group=f"{kind} of {current.group}"
        )
        last, missed = bookmark.take_over(), None
        source: Notifications | None = None
        if last is not None and last.group is not None and last.group.segments.keys() == current.segments.keys():
            ident, filter_ = last.id, GroupEventFilter(load_summary, kind, summary=last.group, keeps_summaries=True)
            source, missed = self._reopen(last, lambda each: filter_.translate(each) if each.id > ident else ())
            if missed is not None or last.cut.stream != source.position.stream:
                source.close()  # the group's changes can't be derived across a gap
                source = None
        if source is None:
            filter_ = GroupEventFilter(load_summary, kind, keeps_summaries=True)
            source = self._present_first(filter_.initial, filter_.translate)
            if not filter_.has_unsaved:  # else the place is recorded after the present state is delivered
                bookmark.save(LastDelivered(source.initial_until, source.position, filter_.current))
        followed = source

        def save(each: Notification) -> None:
            bookmark.save(LastDelivered(each.id, followed.position, filter_.summary_after(each.id)))

        return self._subscribe(handle, source, BookmarkCallbacks(bookmark.check, save), missed)

    def _reopen(self, last: LastDelivered, translate: Translate) -> tuple[Notifications, Truncated | None]:
        """Follow after the last notification a listener got. Also returns an error if retention removed notifications
        meanwhile."""
        if last.cut.stream != self._publisher.stream():  # the stream of notifications was deleted, with its contents
            return self._open(start=HEAD, follow=True, translate=translate), None
        try:
            return self._open(start=last.cut, follow=True, translate=translate), None
        except Truncated as exc:
            return self._open(start=HEAD, follow=True, translate=translate), exc

    def _of_stream(self, stream: StreamId) -> tuple[First, Translate]:
        """The present state and the changes that a listener to one stream gets."""

        def first(position: int, at: Micros) -> Sequence[Notification]:
            view = self._streams.view(stream)
            detail = {"epoch": view.info.epoch, "head": str(head_cut(view)), "sealed": view.info.sealed}
            count = len(view.current)
            return (Notification(position, at, PRESENT, str(view.info.name), stream, segments=count, detail=detail),)

        return first, lambda each: (each,) if each.stream_id == stream else ()


def _filter_after(after: int, stream: StreamId | None) -> Translate:
    """A filter for the notifications after an id, of one stream or (None) of all streams."""
    return lambda each: (each,) if each.id > after and stream in (None, each.stream_id) else ()
