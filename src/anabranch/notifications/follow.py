"""Reading notifications from the stream to which they are published."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from anabranch import limits
from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.errors import Closed
from anabranch.log.tail import Tail
from anabranch.model.cut import StreamCut
from anabranch.model.seconds import wait_limit
from anabranch.notifications.kinds import Notification
from anabranch.notifications.publisher import NotificationPublisher, notifications_of
from anabranch.reading.reader import Reader
from anabranch.runtime.ports import Runtime

# The notifications that the consumer gets for each store notification, in order.
Translate: TypeAlias = Callable[[Notification], Iterable[Notification]]


class Notifications(Displayed, Closeable):
    """Iterates over notifications in the order of the changes; see `Store.notifications`. For one consumer; only
    `close` may be called from another thread, and ends the iteration.

    With `follow`, the iteration waits for further notifications: changes by this process appear at once, changes by
    other processes some milliseconds later. Raises Truncated if retention of the notification stream removed the next
    notifications."""

    def __init__(
        self,
        publisher: NotificationPublisher,
        reader: Reader,
        tail: Tail,
        runtime: Runtime,
        *,
        translate: Translate,
        follow: bool,
        on_close: Callable[[Notifications], None] | None = None,
    ) -> None:
        self._publisher = publisher
        self._reader = reader
        self._tail = tail
        self._runtime = runtime
        self._translate = translate
        self._follow = follow
        self._on_close = on_close
        self._pending: deque[Notification] = deque()
        self._batch_position = reader.position
        self.initial_until = 0  # the id of the last change that the initial state includes
        self._closed = False

    def __iter__(self) -> Iterator[Notification]:
        while (found := self.next()) is not None:
            yield found

    def next(self, timeout_s: float | None = None) -> Notification | None:
        """The next notification; None at the end, once closed, or if none arrives within `timeout_s` seconds. Raises
        InvalidArgument."""
        limit_s = wait_limit("timeout_s", timeout_s)
        clock = self._runtime.clock
        deadline = None if limit_s is None else clock.monotonic() + limit_s
        while not self._closed:
            if self._pending:
                return self._pending.popleft()
            generation = self._tail.generation()
            try:
                if self._read_batch():
                    continue
            except Closed:
                if self._closed:  # by another thread, during the call
                    return None
                raise
            remaining_s = None if deadline is None else deadline - clock.monotonic()
            if not self._follow or (remaining_s is not None and remaining_s <= 0):
                return None
            if self._tail.wait(generation, remaining_s):
                self._runtime.tasks.sleep(limits.NOTIFICATION_POLL_S)
        return None

    def _read_batch(self) -> bool:
        """True if a batch was read, even one without notifications for this consumer."""
        if self._follow:
            self._publisher.advance()
        position = self._reader.position
        batch = self._reader.read()
        if batch is None:
            return False
        self._batch_position = position
        for each in notifications_of(batch):
            self._pending.extend(self._translate(each))
        return True

    @property
    def position(self) -> StreamCut:
        """A cut of the notification stream that is at most one batch before the next notification."""
        return self._batch_position

    def _facts(self) -> Mapping[str, object]:
        return {
            "state": "closed" if self._closed else "following" if self._follow else "open",
            "position": self._batch_position,
        }

    def prepend(self, first: Iterable[Notification]) -> None:
        """Return these notifications before all others."""
        self._pending.extendleft(reversed(list(first)))

    def skip_truncated(self) -> int:
        """Continue at the oldest notification that exists, after `Truncated`; returns how many were missed."""
        return self._reader.skip_truncated()

    def close(self) -> None:
        """End the iteration. A second close is harmless."""
        if self._closed:
            return
        self._closed = True
        self._reader.close()
        self._tail.notify()
        if self._on_close is not None:
            self._on_close(self)
