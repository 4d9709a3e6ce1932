"""Delivery: a background task for each listener, so that one that is slow or raises does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Closed, Conflict, Truncated
from anabranch.notifications.follow import Notifications
from anabranch.notifications.kinds import Notification
from anabranch.runtime.log_events import LISTENER_FAILED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy
from anabranch.runtime.tasks import Task

_READ_RETRY = RetryPolicy(pause_s_min=limits.NOTIFICATION_RETRY_S, pause_s_max=limits.NOTIFICATION_RETRY_S, jitter=0)

Handler: TypeAlias = Callable[[Notification], object]


class Undelivered(AnabranchError):
    """Raised by a handler that could not process a notification and can't process later ones. The subscription ends,
    and the bookmark stays before the notification."""


class BookmarkCallbacks(NamedTuple):
    """Checks and saves the bookmark of a named listener. Both raise Conflict if another process has taken over the
    name."""

    check: Callable[[], None]
    save: Callable[[Notification], None]


class Subscription(Displayed):
    """A listener. Calling it unsubscribes: `handle` is not called again, except for a call in progress.

    Each change is delivered once, in order, while the process runs. An exception from `handle` is logged, kept in
    `failure` and counted in `failures`; delivery continues with the next notification. A named listener has a
    `bookmark`, which advances after each call of `handle`. The next process continues from there: a notification that
    `handle` was processing when this process was killed or the name was taken over is delivered again. A listener whose
    name another process has taken over ends, with Conflict as its `failure`. `delivered` counts the notifications it
    has processed."""

    def __init__(
        self,
        handle: Handler,
        source: Notifications,
        runtime: Runtime,
        *,
        on_close: Callable[[Subscription], None],
        bookmark: BookmarkCallbacks | None = None,
    ) -> None:
        self._handle = handle
        self._source = source
        self._runtime = runtime
        self._on_close = on_close
        self._bookmark = bookmark
        self._stopped = False
        self._retries = _READ_RETRY.begin(runtime)
        self._task: Task | None = None
        self.delivered = 0
        self.failures = 0
        self.failure: BaseException | None = None

    def _facts(self) -> Mapping[str, object]:
        return {
            "state": "stopped" if self._stopped else "listening",
            "delivered": self.delivered,
            "failures": self.failures,
        }

    @property
    def stopped(self) -> bool:
        """True once the listener was unsubscribed, or has ended."""
        return self._stopped

    def start(self) -> None:
        """Start delivering."""
        self._task = self._runtime.tasks.spawn("listener", self._run)

    def __call__(self) -> None:
        """Unsubscribe. A second time is harmless."""
        if not self._stopped:
            self._stopped = True
            self._source.close()
            self._on_close(self)

    def close(self) -> None:
        """Unsubscribe, and wait for a call of `handle` in progress, at most `limits.NOTIFICATION_CLOSE_S`."""
        self()
        if self._task is not None:
            self._task.join(limits.NOTIFICATION_CLOSE_S)

    def _run(self) -> None:
        while not self._stopped:
            try:
                notification = self._source.next()
            except Closed:
                return
            except Truncated as exc:
                self._skip_truncated(exc)
                continue
            except Exception as exc:  # any error: a listener that stops silently would be worse
                self._retry(exc)
                continue
            if notification is not None and not self._stopped and self._owns_name():
                if not self._deliver(notification):
                    self()
                    return
                self._save_bookmark(notification)
                self.delivered += 1

    def _skip_truncated(self, error: Truncated) -> None:
        try:
            missed = self._source.skip_truncated()
        except AnabranchError as exc:
            self._retry(exc)
        else:
            self._fail(error, f"{missed} notifications were removed by retention before they could be delivered")

    def _retry(self, error: Exception) -> None:
        self._fail(error, "can't read notifications; retrying")
        self._retries.again()

    def _owns_name(self) -> bool:
        """False if another process has taken over the name: that process gets the later notifications."""
        try:
            if self._bookmark is not None:
                self._bookmark.check()
        except Conflict as exc:
            self._stop_with(exc)
            return False
        except AnabranchError:
            pass  # delivering twice is better than not at all
        return True

    def _deliver(self, each: Notification) -> bool:
        """Call the handler. Returns False if the handler raised Undelivered."""
        try:
            self._handle(each)
        except Undelivered:
            return False
        except Exception as exc:  # an error of one listener must not stop its deliveries
            self._fail(exc, f"a listener's handler raised an error for notification {each.id} ('{each.kind}')")
        return True

    def _save_bookmark(self, each: Notification) -> None:
        if self._bookmark is None:
            return
        try:
            self._bookmark.save(each)
        except Conflict as exc:
            self._stop_with(exc)
        except AnabranchError as exc:
            # The next bookmark update covers this one; if none follows, this notification is delivered again.
            self._fail(exc, f"can't save a listener's bookmark after notification {each.id}")

    def _stop_with(self, error: Conflict) -> None:
        self._fail(error, "a listener has ended")
        self()

    def report_missed(self, error: Truncated) -> None:
        """Report that retention removed notifications while this named listener was not running."""
        self._fail(error, "notifications were removed by retention before they could be delivered")

    def _fail(self, error: BaseException, what: str) -> None:
        self.failure = error
        self.failures += 1
        LISTENER_FAILED(traceback=error, problem=what, error=error)
