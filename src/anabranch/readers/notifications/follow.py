"""Reading notifications: from the stream in which they are noted down, again whenever one likes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TypeAlias

from anabranch import limits
from anabranch.core.notifications import Notification
from anabranch.errors import Closed
from anabranch.log.tail import Tail
from anabranch.model.cut import StreamCut
from anabranch.readers.notifications.journal import Journal, notifications_of
from anabranch.readers.reader import Reader
from anabranch.runtime.ports import Runtime

# What whoever asked gets for each notification, in order.
Translate: TypeAlias = Callable[[Notification], Iterable[Notification]]


class Notifications:
    """Notifications in the order of the changes, to be iterated over; see `Store.notifications`. For one consumer; only
    `close` may be called from another thread, and ends the iteration.

    Where it `follow`s, it waits for more: what this process changed is there at once, what others changed some
    milliseconds later. Raises Truncated where the retention of the notification stream has overtaken it.
    """

    def __init__(
        self,
        journal: Journal,
        reader: Reader,
        tail: Tail,
        runtime: Runtime,
        *,
        translate: Translate,
        follow: bool,
        on_close: Callable[[Notifications], None] | None = None,
    ) -> None:
        self._journal = journal
        self._reader = reader
        self._tail = tail
        self._runtime = runtime
        self._translate = translate
        self._follow = follow
        self._on_close = on_close
        self._ready: deque[Notification] = deque()
        self._place = reader.position
        self.begun_behind = 0  # the id up to which the present state told of everything when this began
        self._closed = False

    def __iter__(self) -> Iterator[Notification]:
        while (found := self.next()) is not None:
            yield found

    def next(self, timeout_s: float | None = None) -> Notification | None:
        """The next one; None at the end, once closed, or where none comes within `timeout_s` seconds."""
        clock = self._runtime.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        while not self._closed:
            if self._ready:
                return self._ready.popleft()
            seen = self._tail.seen()
            try:
                if self._look():
                    continue
            except Closed:
                if self._closed:  # by another thread, in the midst of it
                    return None
                raise
            left = None if deadline is None else deadline - clock.monotonic()
            if not self._follow or (left is not None and left <= 0):
                return None
            if self._tail.wait(seen, left):
                self._runtime.tasks.sleep(limits.NOTIFICATION_REST_S)
        return None

    def _look(self) -> bool:
        """True if there was something new, wanted or not."""
        if self._follow:
            self._journal.advance()
        place = self._reader.position
        batch = self._reader.read()
        if batch is None:
            return False
        self._place = place
        for each in notifications_of(batch):
            self._ready.extend(self._translate(each))
        return True

    @property
    def place(self) -> StreamCut:
        """A cut of the notification stream that lies before whatever follows the last one handed out, at most a batch
        before it."""
        return self._place

    def begin_with(self, first: Iterable[Notification]) -> None:
        """Let these come before all others."""
        self._ready.extendleft(reversed(list(first)))

    def skip_truncated(self) -> int:
        """Go on at the oldest one that is kept, as after `Truncated`; returns how many were missed."""
        return self._reader.skip_truncated()

    def close(self) -> None:
        """End it. A second close is harmless."""
        if self._closed:
            return
        self._closed = True
        self._reader.close()
        self._tail.notify()
        if self._on_close is not None:
            self._on_close(self)

    def __enter__(self) -> Notifications:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
