"""Handing out: each listener is told by a task of its own, so that one that is slow or raises harms no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from anabranch import limits
from anabranch.core.notifications import Notification
from anabranch.errors import AnabranchError, Closed, Conflict, Truncated
from anabranch.readers.notifications.follow import Notifications
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_log = logging.getLogger("anabranch.notifications")

Handle: TypeAlias = Callable[[Notification], object]


class Remember(NamedTuple):
    """The bookmark of a listener that has a name. Both raise Conflict where another process has taken the name over."""

    check: Callable[[], None]
    keep: Callable[[Notification], None]


class Subscription:
    """A listener. Calling it ends it: `handle` is not called again, but for a call that is under way.

    It is told of each change once, in order, as long as its process lives. What `handle` raises is logged and kept in
    `failure`, counted in `failures`, and it goes on with the next. One that has a name is given `remember`, which moves its
    bookmark behind each call of `handle`; the next process goes on there: it is told again what `handle` was at when this one
    was killed or the name taken over, if anything. A listener whose name another process took over is told nothing more and ends,
    and its `failure` says so. `delivered` counts what it is done with.
    """

    def __init__(
        self,
        handle: Handle,
        source: Notifications,
        runtime: Runtime,
        *,
        on_close: Callable[[Subscription], None],
        remember: Remember | None = None,
    ) -> None:
        self._handle = handle
        self._source = source
        self._runtime = runtime
        self._on_close = on_close
        self._remember = remember
        self._stopped = False
        self._task: Task | None = None
        self.delivered = 0
        self.failures = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self._task = self._runtime.tasks.spawn("listener", self._run)

    def __call__(self) -> None:
        """Unsubscribe. A second time is harmless."""
        if not self._stopped:
            self._stopped = True
            self._source.close()
            self._on_close(self)

    def close(self) -> None:
        """Unsubscribe, and wait for a call of `handle` that is under way, at most `limits.NOTIFICATION_CLOSE_S`."""
        self()
        if self._task is not None:
            self._task.join(limits.NOTIFICATION_CLOSE_S)

    def _run(self) -> None:
        while not self._stopped:
            try:
                found = self._source.next()
            except Closed:
                return
            except Truncated as exc:
                self._skip(exc)
                continue
            except Exception as exc:  # whatever it is: a listener that falls silent for ever would be worse
                self._retry(exc)
                continue
            if found is not None and not self._stopped and self._is_its_own():
                self._deliver(found)
                self._note(found)
                self.delivered += 1

    def _skip(self, error: Truncated) -> None:
        try:
            missed = self._source.skip_truncated()
        except AnabranchError as exc:
            self._retry(exc)
        else:
            self._fail(error, f"{missed} notifications were let go before they could be delivered")

    def _retry(self, error: Exception) -> None:
        self._fail(error, "no notifications can be read now; it will be tried again")
        self._runtime.tasks.sleep(limits.NOTIFICATION_RETRY_S)

    def _is_its_own(self) -> bool:
        """False where the name was taken over: what came since is told there."""
        try:
            if self._remember is not None:
                self._remember.check()
        except Conflict as exc:
            self._end(exc)
            return False
        except AnabranchError:
            pass  # told twice is better than not at all
        return True

    def _deliver(self, each: Notification) -> None:
        try:
            self._handle(each)
        except Exception as exc:  # whatever a listener raises is its own affair
            self._fail(exc, f"a listener raised on notification {each.id} ('{each.kind}')")

    def _note(self, each: Notification) -> None:
        if self._remember is None:
            return
        try:
            self._remember.keep(each)
        except Conflict as exc:
            self._end(exc)
        except AnabranchError as exc:
            # The next one moves it too; told again is what this was at, should nothing come before the end.
            self._fail(exc, f"that notification {each.id} was delivered could not be noted")

    def _end(self, error: Conflict) -> None:
        self._fail(error, "a listener ends")
        self()

    def missed(self, error: Truncated) -> None:
        """Say that the retention let go of what this listener, which was away, was still to be told."""
        self._fail(error, "notifications were let go before they could be delivered")

    def _fail(self, error: BaseException, what: str) -> None:
        self.failure = error
        self.failures += 1
        _log.error("%s: %r", what, error, exc_info=error)
