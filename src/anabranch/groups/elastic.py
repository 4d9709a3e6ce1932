"""Starting and stopping readers as segments and lag change. This module only decides how many readers there should be;
the application decides what a reader is (a thread, a process, a pod)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from anabranch.core.assignment import wanted_readers
from anabranch.core.closeable import Closeable
from anabranch.errors import AnabranchError, GroupNotFound, InvalidArgument
from anabranch.groups.load import Distribution, Unread
from anabranch.model.seconds import check_seconds
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime


class GroupLoad(Protocol):
    """What decides how many readers a group needs: a `ReaderGroup`."""

    def distribution(self) -> Distribution:
        """Which reader has which segments."""

    def unread(self) -> Unread:
        """What the group has not read yet."""


class ElasticReaders(Closeable):
    """Keeps as many readers as a group has work for: one for each `events_per_reader` unread events, at least one, at
    most one for each segment or `readers_max`. See `ReaderGroup.elastic`.

    `start(name)` and `stop(name)` are called from a background task, one at a time, and should return soon: a reader
    that was started may join the group later. Readers are stopped only when half of them would suffice, so that the
    number does not oscillate. A reader that was in the group and is no longer (it was killed, or removed by a reset) is
    stopped too, so that its remains can be cleaned up, and another replaces it while there is something to read. An
    exception from a callback ends the task and is raised by `close`. A context manager; leaving it stops every reader
    it started.
    """

    def __init__(
        self,
        group: GroupLoad,
        runtime: Runtime,
        start: Callable[[str], None],
        stop: Callable[[str], None],
        *,
        readers_max: int,
        events_per_reader: int,
        every_s: float,
    ) -> None:
        check_seconds("every_s", every_s)
        if readers_max < 1 or events_per_reader < 1 or every_s <= 0:
            raise InvalidArgument(
                "expected readers_max and events_per_reader of at least 1 and every_s above 0, got"
                f" readers_max={readers_max}, events_per_reader={events_per_reader}, every_s={every_s}"
            )
        self._group = group
        self._start = start
        self._stop = stop
        self._readers_max = readers_max
        self._events_per_reader = events_per_reader
        self._running: list[str] = []
        self._joined: set[str] = set()  # those of `_running` that were seen in the group
        self._started = 0
        self._closed = False
        self._error: Exception | None = None
        self._loop = Periodic(runtime, "elastic readers", every_s, self._check, at_once=True)
        self._loop.start()

    @property
    def running(self) -> list[str]:
        """The names of the readers it started and has not stopped, the oldest first."""
        return list(self._running)

    def step(self) -> None:
        """Check once, and start or stop readers as needed. Raises GroupNotFound, and what the callbacks raise."""
        distribution = self._group.distribution()
        segments = sum(map(len, distribution.readers.values())) + len(distribution.unassigned)
        if segments:  # without segments everything is read, and the readers leave by themselves
            for name in sorted(self._joined.difference(distribution.readers)):
                self._stop_reader(name)
            self._joined.update(name for name in self._running if name in distribution.readers)
        wanted = wanted_readers(
            segments,
            self._group.unread().events,
            events_per_reader=self._events_per_reader,
            readers_max=self._readers_max,
            running=len(self._running),
        )
        while len(self._running) < wanted:
            self._started += 1
            name = f"elastic-{self._started}"
            self._start(name)
            self._running.append(name)
        while len(self._running) > wanted:
            self._stop_reader(self._running[-1])

    def _stop_reader(self, name: str) -> None:
        self._stop(name)
        self._running.remove(name)
        self._joined.discard(name)

    def _check(self) -> None:
        try:
            self.step()
        except AnabranchError as exc:
            if not isinstance(exc, GroupNotFound):
                raise  # logged by `Periodic`, which checks again in the next round: the store may be back by then
            self._fail(exc)
        except Exception as exc:
            self._fail(exc)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._loop.stop()

    def close(self) -> None:
        """Stop every reader it started. A second close is harmless. Raises the error that ended the task, if any."""
        if self._closed:
            return
        self._closed = True
        self._loop.close()
        while self._running:
            self._stop(self._running.pop())
        if self._error is not None:
            raise self._error
