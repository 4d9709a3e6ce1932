"""Notifications of a store that a broker serves; see `anabranch.notifications`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.errors import Closed
from anabranch.model.cut import HEAD, TAIL, StreamCut
from anabranch.model.names import StreamName
from anabranch.model.seconds import wait_limit
from anabranch.notifications.kinds import Notification
from anabranch.notifications.subscription import Handler
from anabranch.reading.bounds import Place
from anabranch.remote.session import ConnectionLost, RemoteSession
from anabranch.remote.subscription import RemoteSubscription, listen
from anabranch.remote.verbs import Owner, RemoteNoun
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame
from anabranch.wire.values import from_json, to_json


class RemoteNotifications(Displayed, Closeable):
    """Like `Notifications`, over a connection: iterates over notifications, and continues after the last one through
    another broker when a connection is lost."""

    def __init__(
        self,
        owner: Owner,
        *,
        stream: str | None,
        start: Place,
        after: int,
        follow: bool,
    ) -> None:
        self._owner = owner
        self._clock = owner.runtime.clock
        self._stream = stream
        self._start = to_json(start)
        self._after = after
        self._follow = follow
        self._pending: deque[Notification] = deque()
        self._position: StreamCut | None = None
        self._closed = False
        self._session = RemoteSession(
            "notifications", owner.connection, owner.runtime, opening=self._opening, on_opened=self._opened
        )

    def _opening(self) -> Frame:
        fields: dict[str, Any] = {"stream": self._stream, "follow": self._follow, "after": self._after}
        # Notifications that were received but not handed out are received again.
        fields["start"] = self._start if self._position is None else to_json(self._position)
        return Frame("notifications.read", 0, fields)

    def _opened(self, frame: Frame) -> None:
        if self._position is None:
            self._position = StreamCut.parse(Fields(frame.fields).text("position"))

    def _facts(self) -> Mapping[str, object]:
        return {"state": "closed" if self._closed else "following" if self._follow else "open"}

    def __iter__(self) -> Iterator[Notification]:
        while (found := self.next()) is not None:
            yield found

    def next(self, timeout_s: float | None = None) -> Notification | None:
        """See `Notifications.next`."""
        limit_s = wait_limit("timeout_s", timeout_s)
        deadline = None if limit_s is None else self._clock.monotonic() + limit_s
        while not self._closed:
            if self._pending:
                found = self._pending.popleft()
                if found.id > self._after or not self._after:
                    self._after = found.id
                    return found
                continue
            left_s = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            try:
                answer = self._session.request("next", {"timeout_s": left_s})
            except ConnectionLost:
                continue
            except Closed:
                if self._closed:  # by another thread, during the call
                    return None
                raise
            self._pending.extend(from_json(each) for each in answer.fields["items"])
            self._position = StreamCut.parse(Fields(answer.fields).text("position"))
            if self._pending:
                continue
            if not self._follow or (deadline is not None and self._clock.monotonic() >= deadline):
                return None
        return None

    @property
    def position(self) -> StreamCut:
        """A cut of the notification stream before the next notification, by a few batches at most."""
        assert self._position is not None, "it was opened"
        return self._position

    def skip_truncated(self) -> int:
        """See `Notifications.skip_truncated`."""
        while True:
            try:
                return Fields(self._session.request("skip", {}).fields).count("missed")
            except ConnectionLost:
                continue

    def close(self) -> None:
        """End the iteration. A second call is harmless."""
        if self._closed:
            return
        self._closed = True
        self._session.close({})
        self._owner.forget(self)


class RemoteStoreNotifications(RemoteNoun):
    """Notifications: read what happened to streams and groups, or have a handler called as it happens."""

    def read(
        self,
        stream: str | StreamName | None = None,
        *,
        start: Place = HEAD,
        after: int = 0,
        follow: bool = False,
    ) -> RemoteNotifications:
        """See `StoreNotifications.read`."""
        name = None if stream is None else str(stream)
        return self._own.keep(RemoteNotifications(self._own, stream=name, start=start, after=after, follow=follow))

    def listen(
        self, handle: Handler, stream: str | StreamName | None = None, *, start: Place = TAIL, name: str | None = None
    ) -> RemoteSubscription:
        """See `StoreNotifications.listen`."""
        wanted = {"stream": None if stream is None else str(stream), "start": start, "name": name}
        return listen(self._own, handle, wanted)
