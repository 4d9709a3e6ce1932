"""Notifications through a broker: reading them (`notifications.read`), and listening (`notifications.listen`).

Reading: the exchange is opened with `stream`, `start`, `after`, `follow`, as for `StoreNotifications.read`; a client
that continues elsewhere gives the position and the id of its last answer. Requests: `next` (`timeout_s`), answered by
some notifications and the position after them; `skip` (after Truncated); `close`.

Listening: opened with `stream`, `start`, `name`, or for a reader group `group`, `kind`, `name`. Requests: `next` with
`handled`, the serial number of the notification that the client's handler has processed, which saves the bookmark; `close`
with `last`, the id of the last notification that the handler has processed, in this session or before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.notifications.kinds import END_OF_DATA, GROUP_PASSED, READERS, SCALED, SEGMENTS, TRUNCATED, Notification
from anabranch.notifications.subscription import Handler, Subscription, Undelivered
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, Session, unknown
from anabranch.wire.errors import error_to_json
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame
from anabranch.wire.values import from_json, to_json

_GROUP_KINDS: Final = {
    SEGMENTS: "on_segments",
    READERS: "on_readers",
    END_OF_DATA: "on_end_of_data",
    SCALED: "on_scaling",
    TRUNCATED: "on_truncation",
    GROUP_PASSED: "on_passed",
}


class _Watching(Session):
    """The base of both sessions: checks the right to read one stream or group, or the whole store."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        self._broker = broker
        self._principal = principal
        self._exchange = exchange
        self._fields = Fields(request.fields)
        self._stream = self._fields.optional_text("stream")
        self._group = self._fields.optional_text("group")
        self.authorize()

    def authorize(self) -> None:
        resource = self._group
        if self._stream is not None:
            info = self._broker.store.streams.get(self._stream)
            resource, self._stream = str(info.name), str(info.name)
        self._broker.guard.authorize(self._principal, "read", resource, verb="notifications.read")

    def _start(self) -> Any:
        start = self._fields.value("start")
        return "head" if start is None else from_json(start)


class NotificationSession(_Watching):
    """Reads notifications for one client."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Raises what `StoreNotifications.read` raises."""
        super().__init__(broker, principal, exchange, request)
        self._source = broker.store.notifications.read(
            self._stream,
            start=self._start(),
            after=self._fields.optional_count("after") or 0,
            follow=self._fields.flag("follow"),
        )

    def opened(self) -> Frame:
        """The position at which reading starts."""
        return Frame("opened", fields={"position": str(self._source.position)})

    def call(self, request: Frame) -> Frame:
        """Answer a request; the docstring of the module lists them."""
        match request.verb:
            case "next":
                return self._next(Fields(request.fields).seconds("timeout_s"))
            case "skip":
                return Frame("skipped", fields={"missed": self._source.skip_truncated()})
        raise unknown(request)

    def _next(self, timeout_s: float | None) -> Frame:
        wait_s = limits.SESSION_WAIT_S if timeout_s is None else min(timeout_s, limits.SESSION_WAIT_S)
        items: list[Any] = []
        notification = self._source.next(wait_s)
        while notification is not None:
            items.append(to_json(notification))
            if len(items) == limits.NOTIFICATIONS_ANSWER_MAX:
                break
            notification = self._source.next(0)
        return Frame("notifications", fields={"items": items, "position": str(self._source.position)})

    def interrupt(self) -> None:
        """End a wait if the client is gone or closes the session."""
        if self._exchange.closing:
            self._source.close()

    def close(self, request: Frame | None) -> None:
        """Stop reading."""
        self._source.close()


class ListenerSession(_Watching):
    """A listener whose handler is at the client."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Raises what `StoreNotifications.listen` raises."""
        super().__init__(broker, principal, exchange, request)
        self._changed = broker.store.runtime.tasks.condition()
        self._offered: Notification | None = None
        self._serial = 0  # of the notification that was offered last
        self._handled = 0
        self._over = False
        self._reported = 0  # the number of failures that the client knows
        name = self._fields.optional_text("name")
        if name is not None:
            self._broker.guard.authorize(principal, "write", self._group or self._stream, verb="notifications.listen")
        self._subscription = self._subscribe(self._hand_over, name)

    def _subscribe(self, handle: Handler, name: str | None) -> Subscription:
        store = self._broker.store
        if self._group is None:
            return store.notifications.listen(handle, self._stream, start=self._start(), name=name)
        method = _GROUP_KINDS.get(kind := self._fields.text("kind"))
        if method is None:
            raise unknown(Frame(kind))
        subscription: Subscription = getattr(store.groups.open(self._group), method)(handle, name=name)
        return subscription

    def _hand_over(self, each: Notification) -> None:
        """Called by the listener's task: offer a notification, and wait until the client has handled it."""
        with self._changed:
            self._serial += 1
            serial, self._offered = self._serial, each
            self._changed.notify_all()
            while self._handled < serial:
                if self._over:
                    raise Undelivered("the client is gone")
                self._changed.wait(limits.CONDITION_WAIT_S)

    def call(self, request: Frame) -> Frame:
        """Answer a request; the docstring of the module lists them."""
        if request.verb != "next":
            raise unknown(request)
        handled = Fields(request.fields).optional_count("handled")
        deadline = self._broker.store.runtime.clock.monotonic() + limits.SESSION_WAIT_S
        with self._changed:
            if handled is not None and handled == self._serial:
                self._handled, self._offered = handled, None
                self._changed.notify_all()
            while self._offered is None and not self._exchange.interrupted() and not self._is_stopped():
                left_s = deadline - self._broker.store.runtime.clock.monotonic()
                if left_s <= 0 or self._subscription.failures > self._reported:
                    break
                self._changed.wait(min(left_s, limits.CONDITION_WAIT_S))
            offered, serial = self._offered, self._serial
        fields = self._failures()
        if offered is not None:
            return Frame("notification", fields={**fields, "serial": serial, "notification": to_json(offered)})
        return Frame("over" if self._is_stopped() else "nothing", fields=fields)

    def opened(self) -> Frame:
        """The failures so far: retention may have removed notifications that a named listener has not got yet."""
        return Frame("opened", fields=self._failures())

    def _failures(self) -> dict[str, Any]:
        failure = self._subscription.failure
        if failure is None or self._subscription.failures == self._reported:
            return {}
        self._reported = self._subscription.failures
        return {"failures": [error_to_json(failure)]}

    def _is_stopped(self) -> bool:
        return self._subscription.stopped

    def interrupt(self) -> None:
        """Wake a waiting call. An offered notification stays offered until `close`, whose request may report that it
        was handled."""
        with self._changed:
            self._changed.notify_all()

    def close(self, request: Frame | None) -> None:
        """Stop listening. A notification that was not handled is delivered again to the next listener of the same
        name."""
        last = None if request is None else Fields(request.fields).optional_count("last")
        with self._changed:
            if self._offered is not None and last is not None and self._offered.id <= last:
                self._handled, self._offered = self._serial, None
            self._over = True
            self._changed.notify_all()
        with suppress(AnabranchError):
            self._subscription.close()
