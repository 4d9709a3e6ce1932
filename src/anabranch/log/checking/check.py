"""Checks a store: every invariant of the catalog, and that each blob has the bytes that were written to it.

Repairs nothing. Corruption is reported as findings, not raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.tables import BY_NAME, Value
from anabranch.core.invariants import ExtentChain, log_violations, progress_violations, stream_violations
from anabranch.errors import Closed, CorruptCatalog, Forked, KeyMissing, StoreUnavailable, StreamNotFound, WrongKey
from anabranch.log.checking.blobs import blob_flaws, inline_flaws
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.upkeep.failures import upkeep_failures
from anabranch.model.append import LogState
from anabranch.model.ids import BlobId, LogId, Micros, StreamId, WriterId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent
from anabranch.model.times import to_datetime
from anabranch.runtime.sealing import Sealer

_NO_LIMIT = 1 << 62
_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


class Severity(Enum):
    """ERROR: something that was acknowledged is lost or uncertain. WARNING: unexpected, but nothing is lost."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect: where (stream, segment, log or blob), and what."""

    where: str
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.message}"


def check(
    catalog: Catalog,
    blobs: Blobs,
    *,
    stream: StreamId | None = None,
    deep: bool = True,
    now: Micros | None = None,
    progress: ProgressCallback | None = None,
    sealer: Sealer | None = None,
) -> Iterator[Finding]:
    """All findings of a store, or of one stream and the logs it views; none for a sound store.

    `deep` reads every byte of every blob in use; otherwise only existence and size of blobs are checked. With `now`,
    leases and the horizon are checked too. Safe in parallel with writers, compaction and collection: each page is read
    in its own snapshot, and what looks wrong because of a concurrent change is read again. `progress` is called with
    streams, logs and blobs. `sealer` is the store's, None if it is not encrypted. Raises only StreamNotFound, Closed,
    KeyMissing, WrongKey and, if the catalog can't be reached, StoreUnavailable and its subclasses. A blob that can't be
    read is a finding."""
    yield from _Check(catalog, blobs, deep, progress or no_progress, sealer).run(stream, now)


class _Check:
    def __init__(
        self, catalog: Catalog, blobs: Blobs, deep: bool, progress: ProgressCallback, sealer: Sealer | None
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._deep = deep
        self._progress = progress
        self._sealer = sealer
        self._schemas: dict[tuple[StreamId, int], StreamSchema | None] = {}

    def run(self, stream: StreamId | None, now: Micros | None) -> Iterator[Finding]:
        yield from self._findings_of("database", self._database)
        yield from self._findings_of("upkeep", self._upkeep, stream)
        if stream is not None:
            yield from self._one_stream(stream)
            return
        for table in BY_NAME:
            yield from self._rows(table)
        yield from self._findings_of("catalog", self._horizon, now)
        yield from self._check_all("stream", StreamId(-1), stream_page, self._named_stream)
        yield from self._check_all("log", LogId(0), log_page, lambda log: self._log(log, {}))
        yield from self._check_all("blob", BlobId(0), _blob_page, self._blob)

    def _rows(self, table: str) -> Iterator[Finding]:
        """Reports each row of a table that does not match its digest. Its values are not examined further."""
        after: Sequence[Value] | None = None
        while True:
            audited = self._attempt(f"table {table}", self._audit, table, after)
            if isinstance(audited, Finding):
                yield audited
                return
            after, flaws = audited
            for flaw in flaws:
                yield Finding(f"table {table}, row ({flaw.row})", "its values do not match its digest")
            if after is None:
                return

    def _audit(
        self, table: str, after: Sequence[Value] | None
    ) -> tuple[Sequence[Value] | None, Sequence[CorruptCatalog]]:
        with self._catalog.reading() as snapshot:
            return snapshot.audit(table, after)

    def _check_all(
        self,
        kind: str,
        first: _Key,
        page: Callable[[Reading, _Key], list[_Key]],
        check_one: Callable[[_Key], Iterable[Finding]],
    ) -> Iterator[Finding]:
        """Checks all objects of one kind, a page of keys at a time."""
        after, count = first, 0
        while True:
            found = self._attempt(f"{kind}s", self._fetch, page, after)
            if isinstance(found, Finding):
                yield found
                return
            for key in found:
                yield from self._findings_of(f"{kind} {key}", check_one, key)
                count += 1
                self._progress(f"{kind}s", count, 0)
            if not found:
                return
            after = found[-1]

    def _fetch(self, page: Callable[[Reading, _Key], list[_Key]], after: _Key) -> list[_Key]:
        with self._catalog.reading() as snapshot:
            return page(snapshot, after)

    def _findings_of(self, where: str, work: Callable[..., Iterable[Finding]], *arguments: object) -> list[Finding]:
        found = self._attempt(where, lambda: list(work(*arguments)))
        return [found] if isinstance(found, Finding) else found

    def _attempt(self, where: str, work: Callable[..., _Result], *arguments: object) -> _Result | Finding:
        try:
            return work(*arguments)
        except (Closed, Forked, KeyMissing, StoreUnavailable, StreamNotFound, WrongKey):
            raise
        except Exception as exc:  # a damaged row or byte may make any code fail: that is a finding, not an error
            return Finding(where, str(exc) or type(exc).__name__)

    def _database(self) -> list[Finding]:
        with self._catalog.reading() as snapshot:
            return [Finding("database", message) for message in snapshot.verify_database()]

    def _upkeep(self, stream: StreamId | None) -> list[Finding]:
        """Upkeep tasks that keep failing, of the given stream or of all streams."""
        with self._catalog.reading() as snapshot:
            found = upkeep_failures(snapshot, stream)
        return [
            Finding(
                f"upkeep of stream {each.name}",
                f"{each.task} has failed {each.times} time(s) in a row, first at {to_datetime(each.since)}: {each.error}",
                Severity.WARNING,
            )
            for each in found
        ]

    def _horizon(self, now: Micros | None) -> Iterator[Finding]:
        with self._catalog.reading() as snapshot:
            horizon, leases = snapshot.horizon(), snapshot.leases()
        if now is None:
            return
        if horizon > now:
            yield Finding(
                "horizon", f"{horizon} µs is ahead of the clock: large commits are written twice", Severity.WARNING
            )
        for lease in leases:
            if lease.expires_at > now and lease.begun_at < horizon:
                # Harmless: the holder of a lease checks the horizon first, in the transaction that relies on the lease.
                message = (
                    f"begun at {lease.begun_at} µs, before the horizon {horizon}: it had expired when another "
                    "process collected. It protects nothing; its holder gets an error at its next check, and retries"
                )
                yield Finding(f"lease {lease.id} ({lease.kind})", message, Severity.WARNING)

    # streams

    def _one_stream(self, stream: StreamId) -> Iterator[Finding]:
        with self._catalog.reading() as snapshot:
            info = snapshot.stream(stream)
        if info is None:
            raise StreamNotFound(f"{stream:016x}")
        logs: list[LogId] = []
        yield from self._findings_of(f"stream {info.name}", self._stream, stream, logs)
        blobs: dict[BlobId, None] = {}
        for number, log in enumerate(logs):
            yield from self._findings_of(f"log {log}", self._log, log, blobs)
            self._progress("logs", number + 1, len(logs))
        for number, blob in enumerate(blobs):
            yield from self._findings_of(f"blob {blob}", self._blob, blob)
            self._progress("blobs", number + 1, len(blobs))

    def _named_stream(self, stream: StreamId) -> list[Finding]:
        """What is wrong with a stream's own rows, with the stream's name as the place of the findings."""
        with self._catalog.reading() as snapshot:
            info = snapshot.stream(stream)
        return [] if info is None else self._findings_of(f"stream {info.name}", self._stream, stream, [])

    def _stream(self, stream: StreamId, logs: list[LogId]) -> Iterator[Finding]:
        """What is wrong with a stream's own rows; adds the logs it views to `logs`."""
        with self._catalog.reading() as snapshot:
            info = snapshot.stream(stream)
            view, missing = snapshot.inspect(stream) if info is not None else (None, [])
        if info is None or view is None:
            return  # deleted in between
        name = info.name
        for message in missing:
            yield Finding(f"stream {name}", message)
        logs += sorted(view.logs)
        for flaw in stream_violations(view):
            where = f"stream {name}"
            where += f", segment {flaw.segment}" if flaw.segment is not None else ""
            where += f", log {flaw.log}" if flaw.log is not None else ""
            yield Finding(where, flaw.message)

    # logs

    def _log(self, log: LogId, blobs: dict[BlobId, None]) -> list[Finding]:
        """What is wrong with a log, its extents and its writers; adds the blobs of its extents to `blobs`."""
        flaws = self._log_pages(log, self._catalog.reading, blobs)
        if flaws:
            # Between two pages extents may have been compacted or collected: only a single snapshot is conclusive.
            with self._catalog.reading() as snapshot:
                flaws = self._log_pages(log, lambda: nullcontext(snapshot), blobs)
        where = self._describe_log(log) if flaws else ""
        return [Finding(where, message) for message in flaws]

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
                    return []  # collected in between
                if position is None:
                    position = state.low_water
                    spans = snapshot.spans_of_log(log)
                    chain = ExtentChain.of(spans)
                    flaws += log_violations(state, spans)
                page = snapshot.extents(log, position, _NO_LIMIT, limits.EXTENTS_PER_PLAN_MAX)
                schemas = {extent.schema: self._schema(snapshot, state, extent.schema) for extent in page}
                last = len(page) < limits.EXTENTS_PER_PLAN_MAX
                if last:
                    flaws += self._writers(snapshot, state)
            for extent in page:
                flaws += chain.check_next(state, extent)
                flaws += self._contents(extent, schemas[extent.schema])
                if extent.blob is not None and extent.key is not None:
                    blobs[extent.blob] = None
            if last:
                return [*flaws, *chain.check_end(state)]
            # An empty extent, which is a flaw, must not stop the walk from advancing.
            position = max(page[-1].stop, page[-1].start + 1)

    def _contents(self, extent: Extent, schema: StreamSchema | None) -> Iterator[str]:
        if schema is None:
            yield f"the extent {extent.start} … {extent.stop} has schema {extent.schema}, which its stream never had"
        elif extent.data is not None and self._deep:
            yield from inline_flaws(extent, schema, self._sealer)

    def _schema(self, snapshot: Reading, log: LogState, version: int) -> StreamSchema | None:
        key = (log.stream, version)
        if key not in self._schemas:
            try:
                self._schemas[key] = snapshot.schema(log.stream, version)
            except StoreUnavailable:
                raise
            except Exception:  # missing, or not the bytes of a schema
                self._schemas[key] = None
        return self._schemas[key]

    def _writers(self, snapshot: Reading, state: LogState) -> Iterator[str]:
        after = WriterId("")
        while page := snapshot.writers_of_log(state.id, after, limits.CATALOG_PAGE_ROWS):
            for writer, progress in page:
                yield from progress_violations(state, writer, progress)
            after = page[-1][0]

    def _describe_log(self, log: LogId) -> str:
        """A log's name for people: a stream and segment that view it, preferring the log's own stream to copies. If
        the rows that hold the name are damaged, it is the log's number: a damaged row must not hide the findings."""
        try:
            return self._describe_viewer(log) or f"log {log}"
        except (Closed, Forked, StoreUnavailable):
            raise
        except Exception:  # reported where the row itself is checked
            return f"log {log}"

    def _describe_viewer(self, log: LogId) -> str | None:
        with self._catalog.reading() as snapshot:
            state = snapshot.logs([log]).get(log)
            viewers = snapshot.spans_of_log(log)
            viewers.sort(key=lambda viewer: state is None or viewer[0] != state.stream)
            for stream, span in viewers[:1]:
                info = snapshot.stream(stream)
                others = len({viewer for viewer, _ in viewers}) - 1
                also = f" (and {others} other stream(s))" if others else ""
                return f"stream {info.name if info else f'{stream:016x}'}, segment {span.segment}, log {log}{also}"
        return None

    # blobs

    def _blob(self, blob: BlobId) -> list[Finding]:
        flaws = self._blob_once(blob)
        if flaws:
            # The blob may have been removed, after a compaction, while it was read: look again.
            flaws = self._blob_once(blob)
        return [
            Finding(f"{self._describe_log(log)}, blob {key}" if log is not None else f"blob {key}", message)
            for key, log, message in flaws
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
            return []  # no stream can see it; the collector will remove it
        try:
            found = list(blob_flaws(self._blobs, row, extents, schemas, deep=self._deep, sealer=self._sealer))
        except Exception as exc:  # as in _findings_of, but a blob that vanished is looked up again
            found = [(None, str(exc) or type(exc).__name__)]
        # A flaw of the whole blob concerns all logs with data in it: name the first of these logs.
        return [(row.key, extents[0].log if log is None else log, message) for log, message in found]


# Pages are of ids, because the id of a damaged row can be read too: a damaged row must not end the check.
def stream_page(snapshot: Reading, after: StreamId) -> list[StreamId]:
    """A page of stream ids, from the first after `after`."""
    return snapshot.stream_ids_after(after, limits.CATALOG_PAGE_ROWS)


def log_page(snapshot: Reading, after: LogId) -> list[LogId]:
    """A page of log ids, from the first after `after`."""
    return snapshot.log_ids_after(after, limits.CATALOG_PAGE_ROWS)


def _blob_page(snapshot: Reading, after: BlobId) -> list[BlobId]:
    return snapshot.blob_ids_after(after, limits.CATALOG_PAGE_ROWS)
