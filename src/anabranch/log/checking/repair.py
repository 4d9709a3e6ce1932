"""Repairs what `check` finds, where that is safe: only rows that follow from other rows.

Writes no blob, and drops no extent, span or blob, so everything readable stays readable. `advice` suggests what may
help with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.core.repair import Extents, repair_log, repair_stream
from anabranch.errors import Closed, Forked, StoreUnavailable
from anabranch.log.checking.check import Finding, log_page, stream_page
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.stream import Extent

_NO_LIMIT = 1 << 62
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One repair that was made, or would be made: where (stream, log or lease), and the corrected value."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def repair(
    catalog: Catalog,
    *,
    stream: StreamId | None = None,
    dry_run: bool = False,
    now: Micros,
    progress: ProgressCallback = no_progress,
) -> Iterator[RepairAction]:
    """Makes all safe repairs, in the store or in one stream and what it views, each stream and log in its own
    transaction. With `dry_run` nothing is changed. Safe in parallel with everything else. `progress` is called with
    streams and logs. Raises CorruptCatalog if the database itself can't be read, StoreUnavailable and its subclasses.
    """
    yield from _Repair(catalog, dry_run, progress).run(stream, now)


def advice(finding: Finding) -> str:
    """Why a finding is not repaired, and what may help."""
    where, what = finding.where, finding.message
    if where.startswith(("database", "table", "catalog", "streams", "logs", "blobs")):
        return "the database is damaged: anabranch rebuild, or restore a backup"
    if where.startswith("upkeep"):
        return (
            "no events are lost, and upkeep retries: fix the cause named by the error, or copy the stream; "
            "anabranch compact STREAM retries at once"
        )
    if where == "horizon":
        return "it stays until the clock has passed it: check the machine's clock"
    if "blob" in where or "checksum" in what or "no extent" in what:
        return (
            "its events are lost unless the blob is recovered: restore a backup, or truncate the stream after them "
            "(anabranch stream truncate)"
        )
    return "its rows contradict each other, and the right ones are unknown: restore a backup, or anabranch rebuild"


class _Repair:
    def __init__(self, catalog: Catalog, dry_run: bool, progress: ProgressCallback) -> None:
        self._catalog = catalog
        self._dry_run = dry_run
        self._progress = progress

    def run(self, stream: StreamId | None, now: Micros) -> Iterator[RepairAction]:
        logs: Iterable[LogId]
        if stream is None:
            yield from self._leases(now)
            streams: Iterable[StreamId] = self._all(stream_page, StreamId(-1))
            logs = self._all(log_page, LogId(0))
        else:
            with self._catalog.reading() as snapshot:
                view = snapshot.view(stream)
            streams, logs = [stream], sorted(view.logs) if view else []
        for number, ident in enumerate(streams):
            yield from self._stream(ident)
            self._progress("streams", number + 1, 0)
        for number, log in enumerate(logs):
            yield from self._log(log)
            self._progress("logs", number + 1, 0)

    def _all(self, page: Callable[[Reading, _Key], list[_Key]], after: _Key) -> Iterator[_Key]:
        while True:
            with self._catalog.reading() as snapshot:
                found = page(snapshot, after)
            yield from found
            if not found:
                return
            after = found[-1]

    def _plan_and_apply(self, plan: Callable[[Reading, Writing | None], list[RepairAction]]) -> list[RepairAction]:
        """Plans on a snapshot; if there is something to do, plans again under the lock, and does it."""
        reading: AbstractContextManager[Reading] = self._catalog.reading()
        try:
            with reading as snapshot:
                found = plan(snapshot, None)
        except (Closed, Forked, StoreUnavailable):
            raise
        except Exception:  # a damaged row may make any code fail: check reports it, and it is left unchanged
            return []
        if not found or self._dry_run:
            return found
        with self._catalog.writing() as txn:
            return plan(txn, txn)

    def _leases(self, now: Micros) -> list[RepairAction]:
        """Ends leases that the horizon has passed: they protect nothing, and their holders find out at their next
        check."""

        def plan(snapshot: Reading, txn: Writing | None) -> list[RepairAction]:
            horizon = snapshot.horizon()
            passed = [lease for lease in snapshot.leases() if lease.expires_at > now and lease.begun_at < horizon]
            for lease in passed if txn is not None else ():
                assert txn is not None
                txn.drop_lease(lease.id)
            return [
                RepairAction(f"lease {lease.id} ({lease.kind})", "removed: it protected nothing") for lease in passed
            ]

        return self._plan_and_apply(plan)

    def _stream(self, stream: StreamId) -> list[RepairAction]:
        def plan(snapshot: Reading, txn: Writing | None) -> list[RepairAction]:
            view = snapshot.view(stream)
            stream_repair = None if view is None else repair_stream(view)
            if view is None or stream_repair is None:
                return []
            if txn is not None:
                info = stream_repair.info or view.info
                txn.update_stream(replace(info, version=info.version + 1))
                for segment in stream_repair.segments:
                    txn.put_segment(stream, segment)
                for span in stream_repair.spans:
                    txn.put_span(stream, span)
                for log in stream_repair.logs:
                    txn.update_log(log)
            return [RepairAction(f"stream {view.info.name}", what) for what in stream_repair.messages]

        return self._plan_and_apply(plan)

    def _log(self, log: LogId) -> list[RepairAction]:
        def plan(snapshot: Reading, txn: Writing | None) -> list[RepairAction]:
            # A damaged log row is repaired only if its values follow from other rows, and its digest confirms them.
            damaged_state = snapshot.damaged_log(log)
            state = damaged_state or snapshot.logs([log]).get(log)
            log_repair = (
                None if state is None else repair_log(state, snapshot.spans_of_log(log), _extents(snapshot, log))
            )
            if log_repair is None or (damaged_state is not None and not snapshot.matches_log(log_repair[0])):
                return []
            if txn is not None:
                txn.update_log(log_repair[0])
            return [RepairAction(f"log {log}", what) for what in log_repair[1]]

        return self._plan_and_apply(plan)


def _extents(snapshot: Reading, log: LogId) -> Extents:
    def walk(position: int) -> Iterator[Extent]:
        while page := snapshot.extents(log, position, _NO_LIMIT, limits.EXTENTS_PER_PLAN_MAX):
            yield from page
            # An empty extent, which is a flaw, must not stop the walk from advancing.
            position = max(page[-1].stop, page[-1].start + 1)

    return walk
