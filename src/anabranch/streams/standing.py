"""How a writer stands in its stream's logs: where they are, which numbers come next, and the fences that hold its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.errors import Fenced, StreamNotFound
from anabranch.log.commit import WriterName
from anabranch.model.append import Progress
from anabranch.model.ids import LogId, StreamId
from anabranch.model.stream import StreamInfo
from anabranch.runtime.ports import Runtime
from anabranch.streams.routes import Routes

# Fences of a name's owners are so far apart: who was taken over may still raise his, to resolve a lost commit on a
# segment that was sealed by then, and must not come up to his successor's.
_TAKEOVER = 1 << 20


class Standing:
    """What a writer knows of its logs, and asks the catalog about them.

    A `named` writer holds its name on every log that it comes to, against all others of that name.
    """

    def __init__(
        self, catalog: Catalog, runtime: Runtime, stream: StreamId, writer: WriterName, *, named: bool
    ) -> None:
        self.writer = writer
        self._catalog = catalog
        self._runtime = runtime
        self._stream = stream
        self._named = named
        self._next: dict[LogId, int] = {}
        self._landed: dict[LogId, int] = {}
        self._uncertain: set[LogId] = set()

    def info(self) -> StreamInfo | None:
        """What the stream is by now; None where it is gone."""
        with self._catalog.reading() as txn:
            return txn.stream(self._stream)

    def number(self, log: LogId, count: int) -> int:
        """Give the next `count` sequence numbers in a log; returns the first."""
        first = self._next.get(log, 0)
        self._next[log] = first + count
        return first

    def land(self, log: LogId, stop: int) -> None:
        """Note that all numbers below `stop` have landed."""
        self._landed[log] = stop

    def doubt(self, logs: Iterable[LogId]) -> None:
        """Have `renew` ask the logs how far this writer got."""
        self._uncertain.update(logs)

    def renew(self) -> Routes:
        """With nothing in flight: resolve what is in doubt, and number on from what has landed. The routes as they are
        now. Raises StreamNotFound, StreamSealed, and Fenced where another took the name over."""
        if self._uncertain:
            self._ask_progress(sorted(self._uncertain))
            self._uncertain.clear()
        routes = self._load_routes()
        self._next = dict(self._landed)
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
            self._own(writing, [log for log in routes.logs if log not in self._landed])
        return routes

    def _routes_of(self, txn: Reading) -> Routes:
        view = txn.view(self._stream)
        if view is None:
            raise StreamNotFound(f"{self._stream:016x}")
        return Routes(view)

    def _own(self, txn: Writing, logs: Sequence[LogId]) -> None:
        """Hold the name on logs that are new to this writer: when it opens, by a fence above all others; afterwards
        by that same fence, or not at all where another took over meanwhile. Raises Fenced."""
        known = {log: txn.progress(log, self.writer.id) or Progress() for log in logs}
        highest = max((each.fence for each in known.values()), default=0)
        fence = self.writer.highest or (highest // _TAKEOVER + 1) * _TAKEOVER
        if highest > fence:
            raise Fenced(fence, highest)
        for log, progress in known.items():
            self._raise_fence(txn, log, progress, fence)

    def _ask_progress(self, logs: Sequence[LogId]) -> None:
        """Raise this writer's fence on the logs, so that nothing of unknown outcome can land any more, and learn how
        far it got. Raises Fenced where another took the name over."""
        with self._catalog.writing(self._stream) as txn:
            for log in txn.logs(logs):
                progress = txn.progress(log, self.writer.id) or Progress()
                carried = self.writer.fences.get(log, 0)
                if progress.fence > carried:
                    raise Fenced(carried, progress.fence)
                self._raise_fence(txn, log, progress, carried + 1)

    def _raise_fence(self, txn: Writing, log: LogId, progress: Progress, fence: int) -> None:
        txn.put_progress(log, self.writer.id, replace(progress, fence=fence), now=self._runtime.clock.now())
        self.writer.fences[log] = fence
        self._landed[log] = self._next[log] = progress.next
