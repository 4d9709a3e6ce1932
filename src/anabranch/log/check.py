"""Checking a store: every invariant of the catalog, and that each blob holds what was written to it.

Nothing is repaired here, and corruption raises nothing: it is what the answer consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.core.invariants import ExtentChain, log_flaws, progress_flaws, stream_flaws
from anabranch.errors import Closed, Forked, KeyMissing, StoreUnavailable, StreamNotFound, WrongKey
from anabranch.log.check_blobs import blob_flaws, inline_flaws
from anabranch.log.watch import Watch, silent
from anabranch.model.append import LogState
from anabranch.model.ids import BlobId, LogId, Micros, StreamId, WriterId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent
from anabranch.runtime.sealing import Sealer

_FOR_EVER = 1 << 62
_Key = TypeVar("_Key")


class Severity(Enum):
    """ERROR: something that was acknowledged is lost or can't be told. WARNING: odd, but nothing is lost by it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where, in the store's own terms (stream, segment, log, blob), and what."""

    where: str
    what: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.what}"


def check(
    catalog: Catalog,
    blobs: Blobs,
    *,
    stream: StreamId | None = None,
    deep: bool = True,
    now: Micros | None = None,
    progress: Watch | None = None,
    sealer: Sealer | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with the store, or with one stream and what it views; nothing for a sound one.

    `deep` reads every byte of every blob in use; otherwise blobs must exist and have their size. With `now`, leases
    and the horizon are looked at too. Safe beside writers, compaction and collection: pages are read in snapshots of
    their own, and what looks wrong because something changed in between is looked at again. `progress` hears of
    streams, logs and blobs. `sealer` is the store's. Raises StreamNotFound, Closed, KeyMissing, WrongKey
    and, where the catalog can't be asked, StoreUnavailable and its kind; nothing else. A blob that can't be read is a
    finding.
    """
    yield from _Check(catalog, blobs, deep, progress or silent, sealer).run(stream, now)


class _Check:
    def __init__(self, catalog: Catalog, blobs: Blobs, deep: bool, progress: Watch, sealer: Sealer | None) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._deep = deep
        self._progress = progress
        self._sealer = sealer
        self._schemas: dict[tuple[StreamId, int], StreamSchema | None] = {}

    def run(self, stream: StreamId | None, now: Micros | None) -> Iterator[Finding]:
        yield from self._guarded("database", self._database)
        if stream is not None:
            yield from self._one_stream(stream)
            return
        yield from self._guarded("catalog", self._horizon, now)
        nameless: StreamName | None = None
        yield from self._walk("stream", nameless, _stream_page, lambda name: self._stream(name, []))
        yield from self._walk("log", LogId(0), _log_page, lambda log: self._log(log, {}))
        yield from self._walk("blob", BlobId(0), _blob_page, self._blob)

    def _walk(
        self,
        what: str,
        first: _Key,
        page: Callable[[Reading, _Key], list[_Key]],
        look: Callable[[_Key], Iterable[Finding]],
    ) -> Iterator[Finding]:
        """Look at all there are of something, a page of keys at a time."""
        after, seen = first, 0
        while True:
            found: list[_Key] = []
            yield from self._guarded(f"{what}s", self._fetch, page, after, found)
            for key in found:
                yield from self._guarded(f"{what} {key}", look, key)
                seen += 1
                self._progress(f"{what}s", seen, 0)
            if not found:
                return
            after = found[-1]

    def _fetch(self, page: Callable[[Reading, _Key], list[_Key]], after: _Key, found: list[_Key]) -> Iterable[Finding]:
        with self._catalog.reading() as snapshot:
            found += page(snapshot, after)
        return ()

    def _guarded(self, where: str, work: Callable[..., Iterable[Finding]], *arguments: object) -> list[Finding]:
        try:
            return list(work(*arguments))
        except (Closed, Forked, KeyMissing, StoreUnavailable, StreamNotFound, WrongKey):
            raise
        except Exception as exc:  # a damaged row or byte may make any code stumble: that is a finding, not a failure
            return [Finding(where, str(exc) or type(exc).__name__)]

    def _database(self) -> list[Finding]:
        with self._catalog.reading() as snapshot:
            return [Finding("database", what) for what in snapshot.verify_database()]

    def _horizon(self, now: Micros | None) -> Iterator[Finding]:
        with self._catalog.reading() as snapshot:
            horizon, leases = snapshot.horizon(), snapshot.leases()
        if now is None:
            return
        if horizon > now:
            yield Finding(
                "horizon", f"{horizon} µs lies ahead of the clock: large commits are written twice", Severity.WARNING
            )
        for lease in leases:
            if lease.expires_at > now and lease.begun_at < horizon:
                # No harm: whoever relies on a lease asks for the horizon first, in the same transaction.
                what = (
                    f"begun at {lease.begun_at} µs, behind the horizon {horizon}: by the clock of the process that "
                    "collected it had run out. It protects nothing; its holder is told when it asks, and begins anew"
                )
                yield Finding(f"lease {lease.id} ({lease.kind})", what, Severity.WARNING)

    # streams

    def _one_stream(self, stream: StreamId) -> Iterator[Finding]:
        with self._catalog.reading() as snapshot:
            info = snapshot.stream(stream)
        if info is None:
            raise StreamNotFound(f"{stream:016x}")
        logs: list[LogId] = []
        yield from self._guarded(f"stream {info.name}", self._stream, info.name, logs)
        blobs: dict[BlobId, None] = {}
        for number, log in enumerate(logs):
            yield from self._guarded(f"log {log}", self._log, log, blobs)
            self._progress("logs", number + 1, len(logs))
        for number, blob in enumerate(blobs):
            yield from self._guarded(f"blob {blob}", self._blob, blob)
            self._progress("blobs", number + 1, len(blobs))

    def _stream(self, name: StreamName | None, logs: list[LogId]) -> Iterator[Finding]:
        """What is wrong with a stream's own rows; notes the logs it views."""
        assert name is not None
        with self._catalog.reading() as snapshot:
            info = snapshot.stream(name)
            view = snapshot.view(info.id) if info is not None else None
        if view is None:
            return  # deleted or renamed meanwhile
        logs += sorted(view.logs)
        for flaw in stream_flaws(view):
            where = f"stream {name}"
            where += f", segment {flaw.segment}" if flaw.segment is not None else ""
            where += f", log {flaw.log}" if flaw.log is not None else ""
            yield Finding(where, flaw.what)

    # logs

    def _log(self, log: LogId, blobs: dict[BlobId, None]) -> list[Finding]:
        """What is wrong with a log, its extents and its writers; notes the blobs it lies in."""
        flaws = self._log_pages(log, self._catalog.reading, blobs)
        if flaws:
            # Between two pages extents may have been compacted or collected: only one snapshot tells for sure.
            with self._catalog.reading() as snapshot:
                flaws = self._log_pages(log, lambda: nullcontext(snapshot), blobs)
        where = self._place(log) if flaws else ""
        return [Finding(where, what) for what in flaws]

    def _log_pages(
        self, log: LogId, reading: Callable[[], AbstractContextManager[Reading]], blobs: dict[BlobId, None]
    ) -> list[str]:
        chain = ExtentChain.of(())
        flaws: list[str] = []
        position: int | None = None
        while True:
            with reading() as snapshot:
                state = snapshot.logs([log]).get(log)
                if state is None:
                    return []  # collected meanwhile
                if position is None:
                    position = state.low_water
                    spans = snapshot.spans_of_log(log)
                    chain = ExtentChain.of(spans)
                    flaws += log_flaws(state, spans)
                page = snapshot.extents(log, position, _FOR_EVER, limits.EXTENTS_PER_PLAN_MAX)
                schemas = {extent.schema: self._schema(snapshot, state, extent.schema) for extent in page}
                last = len(page) < limits.EXTENTS_PER_PLAN_MAX
                if last:
                    flaws += self._writers(snapshot, state)
            for extent in page:
                flaws += chain.follow(state, extent)
                flaws += self._contents(extent, schemas[extent.schema])
                if extent.blob is not None and extent.key is not None:
                    blobs[extent.blob] = None
            if last:
                return [*flaws, *chain.end(state)]
            # An empty extent, which is a flaw, must not keep the walk from moving on.
            position = max(page[-1].stop, page[-1].start + 1)

    def _contents(self, extent: Extent, schema: StreamSchema | None) -> Iterator[str]:
        if schema is None:
            yield f"the extent {extent.start} … {extent.stop} has schema {extent.schema}, which its stream never had"
        elif extent.data is not None and self._deep:
            yield from inline_flaws(extent, schema, self._sealer)

    def _schema(self, snapshot: Reading, log: LogState, version: int) -> StreamSchema | None:
        known = (log.stream, version)
        if known not in self._schemas:
            try:
                self._schemas[known] = snapshot.schema(log.stream, version)
            except StoreUnavailable:
                raise
            except Exception:  # missing, or bytes that are no schema
                self._schemas[known] = None
        return self._schemas[known]

    def _writers(self, snapshot: Reading, state: LogState) -> Iterator[str]:
        after = WriterId("")
        while page := snapshot.writers_of_log(state.id, after, limits.CATALOG_PAGE_ROWS):
            for writer, progress in page:
                yield from progress_flaws(state, writer, progress)
            after = page[-1][0]

    def _place(self, log: LogId) -> str:
        """A log as people know it: by a stream and segment that view it, the log's own stream before its copies."""
        with self._catalog.reading() as snapshot:
            state = snapshot.logs([log]).get(log)
            viewers = snapshot.spans_of_log(log)
            viewers.sort(key=lambda viewer: state is None or viewer[0] != state.stream)
            for stream, span in viewers[:1]:
                info = snapshot.stream(stream)
                others = len({viewer for viewer, _ in viewers}) - 1
                also = f" (and {others} other stream(s))" if others else ""
                return f"stream {info.name if info else f'{stream:016x}'}, segment {span.segment}, log {log}{also}"
        return f"log {log}"

    # blobs

    def _blob(self, blob: BlobId) -> list[Finding]:
        flaws = self._blob_once(blob)
        if flaws:
            # It may have been compacted away and removed while it was read.
            flaws = self._blob_once(blob)
        return [
            Finding(f"{self._place(log)}, blob {key}" if log is not None else f"blob {key}", what)
            for key, log, what in flaws
        ]

    def _blob_once(self, blob: BlobId) -> list[tuple[str, LogId | None, str]]:
        with self._catalog.reading() as snapshot:
            row = next(iter(snapshot.blobs_after(BlobId(blob - 1), 1)), None)
            if row is None or row.id != blob:
                return []
            extents = snapshot.extents_of_blob(blob)
            states = snapshot.logs(sorted({extent.log for extent in extents})) if extents else {}
            schemas = {
                (log, extent.schema): self._schema(snapshot, states[log], extent.schema)
                for extent in extents
                if (log := extent.log) in states
            }
        if not extents:
            return []  # nothing can see it; the collector will remove it
        try:
            found = list(blob_flaws(self._blobs, row, extents, schemas, deep=self._deep, sealer=self._sealer))
        except Exception as exc:  # as in _guarded, but a blob that vanished is looked for again
            found = [(None, str(exc) or type(exc).__name__)]
        # Whatever is wrong with the whole blob is wrong with the logs in it: name the first.
        return [(row.key, extents[0].log if log is None else log, what) for log, what in found]


def _stream_page(snapshot: Reading, after: StreamName | None) -> list[StreamName | None]:
    return [info.name for info in snapshot.streams(after=after, limit=limits.CATALOG_PAGE_ROWS)]


def _log_page(snapshot: Reading, after: LogId) -> list[LogId]:
    return [log.id for log in snapshot.logs_after(after, limits.CATALOG_PAGE_ROWS)]


def _blob_page(snapshot: Reading, after: BlobId) -> list[BlobId]:
    return [row.id for row in snapshot.blobs_after(after, limits.CATALOG_PAGE_ROWS)]
