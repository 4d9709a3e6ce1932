"""Listeners to notifications through a broker, which keeps their bookmarks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Closed, StoreUnavailable
from anabranch.model.ids import Micros
from anabranch.model.times import to_datetime
from anabranch.notifications.kinds import Notification
from anabranch.notifications.subscription import Handler
from anabranch.remote.session import ConnectionLost, RemoteSession
from anabranch.remote.verbs import Owner
from anabranch.runtime.log_events import LISTENER_FAILED
from anabranch.runtime.tasks import Task
from anabranch.wire.errors import error_from_json
from anabranch.wire.frames import Frame
from anabranch.wire.values import from_json, to_json


class RemoteSubscription(Displayed):
    """Like `Subscription`, over a connection. Calling it unsubscribes.

    The broker hands out one notification at a time, and the next one, with the bookmark of a named listener saved, once
    `handle` has returned. Unsubscribing also reports what `handle` has processed, including by a call in progress.

    After a lost connection it listens again through another broker. A named listener continues at its bookmark, and gets
    nothing a second time while the process lives. An unnamed one continues after the last notification that it got; but
    one of a reader group first gets the present state again.
    """

    def __init__(self, owner: Owner, handle: Handler, wanted: Mapping[str, Any]) -> None:
        self._owner = owner
        self._handle = handle
        self._wanted = dict(wanted)
        self._changing = owner.runtime.tasks.lock()
        self._stopped = False
        self._handling = False  # a call of `handle` is in progress
        self._last: int | None = None  # the id of the last notification that it got
        self._last_at = Micros(0)
        self._task: Task | None = None
        self.delivered = 0
        self.failures = 0
        self.failure: BaseException | None = None
        self._session = RemoteSession(
            "listener", owner.connection, owner.runtime, opening=self._opening, on_opened=self._report
        )

    def _facts(self) -> Mapping[str, object]:
        return {
            "state": "stopped" if self._stopped else "listening",
            "delivered": self.delivered,
            "failures": self.failures,
        }

    def start(self) -> None:
        """Start delivering."""
        self._task = self._owner.runtime.tasks.spawn("listener", self._run)

    def __call__(self) -> None:
        """Unsubscribe. A second time is harmless."""
        with self._changing:
            if self._stopped:
                return
            self._stopped = True
            handling = self._handling
        if not handling:  # else its own task waits for the call in progress, and reports it to the broker
            self._end()

    def _end(self) -> None:
        with suppress(AnabranchError):
            self._session.close({"last": self._last})
        self._owner.forget(self)

    def close(self) -> None:
        """Unsubscribe, and wait for a call of `handle` in progress, at most `limits.NOTIFICATION_CLOSE_S`."""
        self()
        if self._task is not None:
            self._task.join(limits.NOTIFICATION_CLOSE_S)

    def _opening(self) -> Frame:
        fields = dict(self._wanted)
        if self._last is not None:  # earlier ones are recognized by their ids
            fields["start"] = to_json(to_datetime(self._last_at))
        return Frame("notifications.listen", 0, fields)

    def _run(self) -> None:
        handled: int | None = None
        opening = self._session.opening
        while not self._stopped:
            try:
                answer = self._session.request("next", {"handled": handled}, opening=opening)
            except ConnectionLost:
                handled, opening = None, self._session.opening  # the other broker has not handed anything out
                continue
            except Closed:
                return
            except StoreUnavailable as exc:
                self._fail(exc, "can't reach a broker; trying again")
                continue
            except (AnabranchError, TimeoutError) as exc:
                self._fail(exc, "a listener has ended")
                self()
                return
            handled = self._take(answer)

    def _take(self, answer: Frame) -> int | None:
        """Hand the answer's notification to the handler; returns its serial number."""
        self._report(answer)
        if answer.verb == "over":
            self()
        if answer.verb != "notification":
            return None
        with self._changing:
            if self._stopped:
                return None
            self._handling = True
        try:
            self._hand_over(from_json(answer.fields["notification"]))
        finally:
            with self._changing:
                self._handling = False
                stopped = self._stopped
            if stopped:
                self._end()
        return int(answer.fields["serial"])

    def _hand_over(self, found: Notification) -> None:
        if self._last is None or found.id > self._last:
            try:
                self._handle(found)
            except Exception as exc:  # an error of one listener must not stop its deliveries
                self._fail(exc, f"a listener's handler raised an error for notification {found.id} ('{found.kind}')")
            self._last, self._last_at = found.id, found.at
            self.delivered += 1

    def _report(self, answer: Frame) -> None:
        for failure in answer.fields.get("failures", ()):
            self._fail(error_from_json(failure), "the broker reports about a listener")

    def _fail(self, error: BaseException, what: str) -> None:
        self.failure = error
        self.failures += 1
        LISTENER_FAILED(traceback=error, problem=what, error=error)


def listen(owner: Owner, handle: Handler, wanted: Mapping[str, Any]) -> RemoteSubscription:
    """Listen to the `wanted` notifications, until the store is closed or the returned function is called."""
    sent = {name: to_json(value) for name, value in wanted.items()}
    subscription = owner.keep(RemoteSubscription(owner, handle, sent))
    subscription.start()
    return subscription
