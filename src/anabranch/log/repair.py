"""Repairing what `check` finds, where that is safe: rows that follow from others, and nothing else.

No byte is written and no extent, span or blob is dropped, so whatever can be read stays readable. What can't be repaired
is named with what may help; see `advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.core.repair import Extents, mend_log, mend_stream
from anabranch.errors import Closed, Forked, StoreUnavailable
from anabranch.log.check import Finding
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Extent

_FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Mended:
    """One thing that was put right, or would be: where, in the store's own terms, and what holds now."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def repair(
    catalog: Catalog,
    *,
    stream: StreamId | None = None,
    dry_run: bool = False,
    now: Micros,
    progress: Watch = silent,
) -> Iterator[Mended]:
    """Put right what can be put right safely, in the store or in one stream and what it views, each stream and log in a
    transaction of its own. With `dry_run` nothing is changed. Safe beside everything else. `progress` hears of streams
    and logs. Raises CorruptCatalog where the database itself can't be read, StoreUnavailable and its kind.
    """
    yield from _Repair(catalog, dry_run, progress).run(stream, now)


def advice(finding: Finding) -> str:
    """Why a finding is left as it is, and what may help."""
    where, what = finding.where, finding.what
    if where.startswith(("database", "catalog", "streams", "logs", "blobs")):
        return "the database is damaged: anabranch rebuild, or restore a backup"
    if where == "horizon":
        return "it holds until the clock has passed it: look at the machine's clock"
    if "blob" in where or "checksum" in what or "no extent" in what:
        return (
            "its events are lost unless the blob is found again: restore a backup, or truncate the stream behind them "
            "(anabranch stream truncate)"
        )
    return "its rows contradict each other, and which is right can't be told: restore a backup, or anabranch rebuild"


class _Repair:
    def __init__(self, catalog: Catalog, dry_run: bool, progress: Watch) -> None:
        self._catalog = catalog
        self._dry_run = dry_run
        self._progress = progress

    def run(self, stream: StreamId | None, now: Micros) -> Iterator[Mended]:
        logs: Iterable[LogId]
        if stream is None:
            yield from self._leases(now)
            streams: Iterable[StreamId] = self._all_streams()
            logs = self._all_logs()
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

    def _all_streams(self) -> Iterator[StreamId]:
        after: StreamName | None = None
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.streams(after=after, limit=limits.CATALOG_PAGE_ROWS)
            yield from [info.id for info in page]
            if not page:
                return
            after = page[-1].name

    def _all_logs(self) -> Iterator[LogId]:
        after = LogId(0)
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.logs_after(after, limits.CATALOG_PAGE_ROWS)
            yield from [log.id for log in page]
            if not page:
                return
            after = page[-1].id

    def _twice(self, plan: Callable[[Reading, Writing | None], list[Mended]]) -> list[Mended]:
        """Plan on a snapshot; if there is something to do, plan again under the lock, and do it."""
        reading: AbstractContextManager[Reading] = self._catalog.reading()
        try:
            with reading as snapshot:
                found = plan(snapshot, None)
        except (Closed, Forked, StoreUnavailable):
            raise
        except Exception:  # a damaged row may make any code stumble: check tells of it, and it stays as it is
            return []
        if not found or self._dry_run:
            return found
        with self._catalog.writing() as txn:
            return plan(txn, txn)

    def _leases(self, now: Micros) -> list[Mended]:
        """A lease whose horizon has passed holds nothing: its holder learns so when it asks, and is not misled before."""

        def plan(snapshot: Reading, txn: Writing | None) -> list[Mended]:
            horizon = snapshot.horizon()
            passed = [lease for lease in snapshot.leases() if lease.expires_at > now and lease.begun_at < horizon]
            for lease in passed if txn is not None else ():
                assert txn is not None
                txn.drop_lease(lease.id)
            return [Mended(f"lease {lease.id} ({lease.kind})", "it is ended: it held nothing") for lease in passed]

        return self._twice(plan)

    def _stream(self, stream: StreamId) -> list[Mended]:
        def plan(snapshot: Reading, txn: Writing | None) -> list[Mended]:
            view = snapshot.view(stream)
            mending = None if view is None else mend_stream(view)
            if view is None or mending is None:
                return []
            if txn is not None:
                info = mending.info or view.info
                txn.update_stream(replace(info, version=info.version + 1))
                for segment in mending.segments:
                    txn.put_segment(stream, segment)
                for span in mending.spans:
                    txn.put_span(stream, span)
                for log in mending.logs:
                    txn.update_log(log)
            return [Mended(f"stream {view.info.name}", what) for what in mending.what]

        return self._twice(plan)

    def _log(self, log: LogId) -> list[Mended]:
        def plan(snapshot: Reading, txn: Writing | None) -> list[Mended]:
            state = snapshot.logs([log]).get(log)
            mended = None if state is None else mend_log(state, snapshot.spans_of_log(log), _extents(snapshot, log))
            if mended is None:
                return []
            if txn is not None:
                txn.update_log(mended[0])
            return [Mended(f"log {log}", what) for what in mended[1]]

        return self._twice(plan)


def _extents(snapshot: Reading, log: LogId) -> Extents:
    def walk(position: int) -> Iterator[Extent]:
        while page := snapshot.extents(log, position, _FOR_EVER, limits.EXTENTS_PER_PLAN_MAX):
            yield from page
            # An empty extent, which is a flaw, must not keep the walk from moving on.
            position = max(page[-1].stop, page[-1].start + 1)

    return walk
