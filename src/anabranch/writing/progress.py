"""A writer's progress in its stream's logs: which logs there are, the next sequence numbers, and the fences that guard
its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.errors import Fenced, StreamNotFound
from anabranch.log.commit import WriterHandle
from anabranch.model.append import Progress
from anabranch.model.ids import LogId, StreamId
from anabranch.model.stream import StreamInfo
from anabranch.runtime.ports import Runtime
from anabranch.writing.routes import Routes

# Fences of successive owners of a name are this far apart: an owner that was replaced may still raise its fence, to
# resolve a lost commit on a segment that was sealed by then, and must not reach its successor's.
_TAKEOVER = 1 << 20


class WriterProgress:
    """A writer's state in its logs, and its catalog queries about these logs.

    A `named` writer claims its name on every log that it writes to, against all other writers of that name. With
    `resumed`, the fence of an earlier claim, it continues as the same owner: appends that were in flight before are
    refused.
    """

    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        stream: StreamId,
        writer: WriterHandle,
        *,
        named: bool,
        resumed: int | None = None,
    ) -> None:
        self.writer = writer
        self._catalog = catalog
        self._runtime = runtime
        self._stream = stream
        self._named = named
        self._resumed = resumed
        self._next: dict[LogId, int] = {}
        self._appended: dict[LogId, int] = {}
        self._uncertain: set[LogId] = set()

    def info(self) -> StreamInfo | None:
        """The stream's current description; None where it was deleted."""
        with self._catalog.reading() as txn:
            return txn.stream(self._stream)

    def assign(self, log: LogId, count: int) -> int:
        """Assign the next `count` sequence numbers in a log; returns the first."""
        first = self._next.get(log, 0)
        self._next[log] = first + count
        return first

    def record_append(self, log: LogId, stop: int) -> None:
        """Record that the events with all numbers below `stop` are appended."""
        self._appended[log] = stop

    def mark_uncertain(self, logs: Iterable[LogId]) -> None:
        """Have `reload` ask the logs how far this writer got."""
        self._uncertain.update(logs)

    def reload(self) -> Routes:
        """Resolve uncertain outcomes, with nothing in flight, and continue numbering after the appended events. Returns
        the current routes. Raises StreamNotFound, StreamSealed, and Fenced where another writer has taken over the
        name."""
        if self._uncertain:
            self._resolve(sorted(self._uncertain))
            self._uncertain.clear()
        routes = self._load_routes()
        self._next = dict(self._appended)
        return routes

    def _load_routes(self) -> Routes:
        if not self._named:
            with self._catalog.reading() as txn:
                routes = self._routes_of(txn)
            for log in routes.logs:
                self.writer.fences.setdefault(log, self.writer.highest)
            return routes
        # In one transaction, so that no scale hides a segment from the fence.
        with self._catalog.writing(self._stream) as writing:
            routes = self._routes_of(writing)
            self._claim(writing, [log for log in routes.logs if log not in self._appended])
        return routes

    def _routes_of(self, txn: Reading) -> Routes:
        view = txn.view(self._stream)
        if view is None:
            raise StreamNotFound(f"{self._stream:016x}")
        return Routes(view)

    def _claim(self, txn: Writing, logs: Sequence[LogId]) -> None:
        """Claim the name on logs that are new to this writer. When the writer opens, the claim is a fence above all
        others; afterwards it is the same fence again. Raises Fenced where another writer has taken over the name."""
        present = {log: txn.progress(log, self.writer.id) or Progress() for log in logs}
        highest = max((each.fence for each in present.values()), default=0)
        fence = self.writer.highest or self._first_fence(highest)
        if highest > fence:
            raise Fenced(fence, highest)
        for log, progress in present.items():
            self._raise_fence(txn, log, progress, fence)

    def _first_fence(self, highest: int) -> int:
        """The fence of a writer that opens. Raises Fenced where it resumes and another writer has taken over the
        name."""
        owner = (highest if self._resumed is None else self._resumed) // _TAKEOVER
        if self._resumed is None:
            return (owner + 1) * _TAKEOVER
        if highest // _TAKEOVER > owner:
            raise Fenced(self._resumed, highest)
        return max(highest, self._resumed) + 1

    def _resolve(self, logs: Sequence[LogId]) -> None:
        """Raise this writer's fence on the logs, so that no append of unknown outcome can land any more, and read how
        far it got. Raises Fenced where another writer has taken over the name."""
        with self._catalog.writing(self._stream) as txn:
            for log in txn.logs(logs):
                progress = txn.progress(log, self.writer.id) or Progress()
                own = self.writer.fences.get(log, 0)
                if progress.fence > own:
                    raise Fenced(own, progress.fence)
                self._raise_fence(txn, log, progress, own + 1)

    def _raise_fence(self, txn: Writing, log: LogId, progress: Progress, fence: int) -> None:
        txn.put_progress(log, self.writer.id, replace(progress, fence=fence), now=self._runtime.clock.now())
        self.writer.fences[log] = fence
        self._appended[log] = self._next[log] = progress.next
