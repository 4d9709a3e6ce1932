"""Starting and stopping readers as segments and lag change. What a reader is (a thread, a process, a pod) is for the
application to say; here is only decided how many there should be."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from anabranch.core.assignment import wanted_readers
from anabranch.errors import AnabranchError, GroupNotFound, InvalidArgument
from anabranch.readers.group.group import ReaderGroup
from anabranch.runtime.ports import Runtime


class ElasticReaders:
    """Keeps as many readers as a group has work for: one for each `events_per_reader` unread events, at least one, at most
    one for each segment or `readers_max`. See `ReaderGroup.elastic`.

    `start(name)` and `stop(name)` are called from a task of its own, one at a time, and should return soon: a reader that
    was started joins the group in its own time. Readers go when half of them would do, so that the number does not swing.
    One that was in the group and is there no more (it was killed, or sent away by a reset) is stopped too, so that whatever is
    left of it can be cleared away, and another takes its place while there is something to read. What a callback raises
    ends it, and is raised by `close`. A context manager; leaving it stops every reader it started.
    """

    def __init__(
        self,
        group: ReaderGroup,
        runtime: Runtime,
        start: Callable[[str], None],
        stop: Callable[[str], None],
        *,
        readers_max: int,
        events_per_reader: int,
        every_s: float,
    ) -> None:
        if readers_max < 1 or events_per_reader < 1 or every_s <= 0:
            raise InvalidArgument("readers_max and events_per_reader are at least 1, and every_s is above 0")
        self._group = group
        self._start = start
        self._stop = stop
        self._readers_max = readers_max
        self._events_per_reader = events_per_reader
        self._every_s = every_s
        self._running: list[str] = []
        self._joined: set[str] = set()  # of these
        self._started = 0
        self._closed = False
        self._error: Exception | None = None
        self._changed = runtime.tasks.condition()
        self._task = runtime.tasks.spawn("elastic-readers", self._run)

    @property
    def running(self) -> list[str]:
        """The names of the readers it started and has not stopped, the oldest first."""
        return list(self._running)

    def step(self) -> None:
        """Look once, and start or stop what is wanted. Raises GroupNotFound, and what the callbacks raise."""
        distribution = self._group.distribution()
        segments = sum(map(len, distribution.readers.values())) + len(distribution.unassigned)
        if segments:  # else they leave because they are at the end
            for name in sorted(self._joined.difference(distribution.readers)):
                self._end(name)
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
            self._end(self._running[-1])

    def _end(self, name: str) -> None:
        self._stop(name)
        self._running.remove(name)
        self._joined.discard(name)

    def _run(self) -> None:
        while not self._closed:
            try:
                self.step()
            except GroupNotFound as exc:
                self._error = exc
                return
            except AnabranchError:
                pass  # the store may come back: look again
            except Exception as exc:
                self._error = exc
                return
            with self._changed:
                if not self._closed:
                    self._changed.wait(self._every_s)

    def close(self) -> None:
        """Stop every reader it started. A second close is harmless. Raises what ended it before."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._task.join()
        while self._running:
            self._stop(self._running.pop())
        if self._error is not None:
            raise self._error

    def __enter__(self) -> ElasticReaders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
