"""Lists the extents that a compaction may rewrite, in portions, with their logical bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from anabranch import limits
from anabranch.blobs.keys import is_attached
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.compaction import ARROW, LogExtents
from anabranch.errors import StreamNotFound
from anabranch.log.upkeep.failures import Isolation
from anabranch.model.append import LogState
from anabranch.model.ids import LogId, StreamId
from anabranch.model.stream import Extent

_LOGS_PER_SNAPSHOT = 64


class ExtentWindows(Iterable[list[LogExtents]]):
    """The extents of the logs, in portions of at most `limits.COMPACT_EXTENTS_MAX`, without their inlined bytes.

    No snapshot is held while a portion is processed. Extents that no span views are left to the collector.
    """

    def __init__(self, catalog: Catalog, stream: StreamId | None, isolation: Isolation) -> None:
        self._catalog = catalog
        self._stream = stream
        self._isolation = isolation
        self._log = LogId(0)  # the logs up to here are done
        self._partial = (LogId(0), 0)  # a log whose extents before this offset are done

    def __iter__(self) -> Iterator[list[LogExtents]]:
        log_ids = None if self._stream is None else self._logs_of_stream(self._stream)
        window: list[LogExtents] = []
        budget = limits.COMPACT_EXTENTS_MAX
        more = True
        while more:
            failures: list[tuple[StreamId, Exception]] = []
            with self._catalog.reading() as snapshot:
                states = _next_logs(snapshot, self._log, log_ids)
                more = bool(states)
                for state in states:
                    try:
                        found = self._read_extents(snapshot, state, budget)
                    except Exception as exc:  # a damaged row of one stream
                        if self._isolation.is_fatal(exc):
                            raise
                        failures.append((state.stream, exc))
                        self._log = state.id
                        continue
                    if found is not None:
                        window.append(found)
                        budget -= len(found.extents)
                    if budget == 0:
                        break
            for stream, error in failures:
                self._isolation.record_failure(stream, error)
            if budget == 0 or (window and not more):
                yield window
                window, budget = [], limits.COMPACT_EXTENTS_MAX

    def _logs_of_stream(self, stream: StreamId) -> list[LogId]:
        with self._catalog.reading() as snapshot:
            view = snapshot.view(stream)
        if view is None:
            raise StreamNotFound(f"{stream:016x}")
        return sorted(view.logs)

    def _read_extents(self, snapshot: Reading, state: LogState, budget: int) -> LogExtents | None:
        """Up to `budget` extents of a log; remembers where to continue."""
        first_viewed = min((span.start for _, span in snapshot.spans_of_log(state.id)), default=state.length)
        partial, done = self._partial
        position = max(first_viewed, state.low_water, done if partial == state.id else 0)
        extents: list[Extent] = []
        base = 0
        while position < state.length and len(extents) < budget:
            limit = min(limits.EXTENTS_PER_PLAN_MAX, budget - len(extents))
            page = snapshot.extents(state.id, position, state.length, limit)
            if not page:
                break
            if not extents:
                base = _size_before(snapshot, page[0])
            extents += [replace(extent, data=None) for extent in page]
            position = page[-1].stop
        if position < state.length and len(extents) == budget:
            self._partial = (state.id, position)
        else:
            self._log = state.id
        return _log_extents(snapshot, state, extents, base) if extents else None


def _next_logs(snapshot: Reading, after: LogId, log_ids: Sequence[LogId] | None) -> list[LogState]:
    if log_ids is None:
        return snapshot.logs_after(after, _LOGS_PER_SNAPSHOT)
    rest = [log for log in log_ids if log > after][:_LOGS_PER_SNAPSHOT]
    states = snapshot.logs(rest) if rest else {}
    return [states[log] for log in rest if log in states]


def _log_extents(snapshot: Reading, state: LogState, extents: list[Extent], base: int) -> LogExtents:
    info = snapshot.stream(state.stream)
    if info is None:  # deleted; copies may still view its log
        version = max(extent.schema for extent in extents)
        schema = snapshot.schema(state.stream, version)
    else:
        version, schema = info.schema_version, info.schema
    edges = [base, *(extent.size_end for extent in extents)]
    sizes = tuple(after - before for before, after in pairwise(edges))
    attached = frozenset(extent.key for extent in extents if extent.key is not None and is_attached(extent.key))
    return LogExtents(state.id, state.stream, schema.columns_to_bytes(), version, tuple(extents), sizes, attached)


def _size_before(snapshot: Reading, first: Extent) -> int:
    """The log's running size at the beginning of an extent. If the extent before it is gone, an estimate: for tier 1,
    logical bytes count as equal to stored bytes; for a file the largest possible size is assumed, so that it is left
    alone."""
    if first.start == 0:
        return 0
    before = snapshot.extent_before(first.log, first.start)
    if before is not None and before.stop == first.start:
        return before.size_end
    return first.size_end - first.location.length if first.encoding == ARROW else 0
