"""Collection: removes what no span views and no lease protects. It never touches anything that a stream can still see.

The order makes every crash harmless. First the horizon is advanced durably, so that no blob begun before it can be
committed any more. Extents are removed before their blobs, and a blob's row before its file, so no row ever names a
missing file. A file whose row is gone has a key older than the horizon, so the next collection finds it as an orphan.
A reader with an older plan misses a blob and plans again.

For rebuilds, two more kinds of blobs are kept: those that the newest manifest may name, though nothing views them, as
long as that manifest is not older than `limits.MANIFEST_PROTECTS_US`; and those that a rebuild has reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import BlobRow, Catalog, Reading, Writing
from anabranch.catalog.state.store import ATTACHMENT
from anabranch.catalog.tables import Value
from anabranch.core.compaction import GONE
from anabranch.core.holes import collected_marker, extents_in_hole, gaps, viewed_ranges
from anabranch.core.ranges import Range
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery.manifest import newest_at, refuse_other_store
from anabranch.log.recovery.rebuild import reported_times
from anabranch.log.upkeep.failures import Isolation
from anabranch.model.append import LogState
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime

_NO_LIMIT: Final = 1 << 62
# At most this many extents reach into an emptied hole: one at each edge and the marker between them.
_EDGES: Final = 3


@dataclass(slots=True)
class CollectReport:
    """What a collection removed. Blobs found unused wait (`blobs_waiting`) until the horizon has passed the time when
    they were found. `bytes_freed` counts files, including orphans. `streams` counts ephemeral streams without holders,
    if the caller has swept them. `skipped` lists the streams whose logs could not be read, with the reason."""

    horizon: Micros = Micros(0)
    streams: int = 0
    logs: int = 0
    extents: int = 0
    blobs: int = 0
    blobs_waiting: int = 0
    orphans: int = 0
    bytes_freed: int = 0
    leases: int = 0
    requests: int = 0
    writers: int = 0
    changes: int = 0
    skipped: tuple[str, ...] = ()
    seconds: float = 0.0


def collect(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    *,
    horizon_us: int | None = None,
    background: bool = False,
    progress: ProgressCallback | None = None,
) -> CollectReport:
    """Removes garbage, in transactions of at most `limits.COLLECT_PAGE_ROWS` rows. Safe in parallel with everything
    else, another collection too, and may be interrupted anywhere.

    `horizon_us` is the age at which an upload without a lease expires (default: the setting's). With 0, uploads
    in progress are refused and written again, and a blob is removed by the second collection that finds it unused. A
    failure in the logs of one stream is skipped and reported; with `background`, streams that failed recently are
    skipped (see `log.upkeep.failures`). `progress` is called for logs, then blobs, then files. Raises StoreUnavailable
    and its subclasses, InvalidArgument if another store uses the same blobs, and CorruptCatalog if a row of the catalog
    is damaged, instead of treating its data as garbage.
    """
    age = runtime.settings.horizon_us if horizon_us is None else horizon_us
    started_s = runtime.clock.monotonic()
    refuse_other_store(catalog, blobs, runtime)
    isolation = Isolation(catalog, runtime, "collect", background=background)
    collection = _Collection(catalog, blobs, runtime, isolation, progress or no_progress)
    collection.advance(age)
    collection.logs()
    collection.dead_blobs()
    collection.orphans()
    collection.old_rows()
    collection.report.seconds = runtime.clock.monotonic() - started_s
    return collection.report


class _Collection:
    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, isolation: Isolation, progress: ProgressCallback
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._isolation = isolation
        self._progress = progress
        self._dead_before = Micros(0)
        self._audited: set[str] = set()
        self.report = CollectReport()

    def _require_intact(self, *tables: str) -> None:
        """Raises CorruptCatalog if a row of the tables is damaged. Data of a damaged row would look like garbage, so
        before anything is removed as unreferenced, all rows that could refer to it must be intact."""
        for table in tables:
            after: Sequence[Value] | None = None
            while table not in self._audited:
                with self._catalog.reading() as snapshot:
                    after, flaws = snapshot.audit(table, after)
                for flaw in flaws:
                    raise flaw
                if after is None:
                    self._audited.add(table)

    def advance(self, age_us: int) -> None:
        """Advances the horizon as far as time and live leases allow, durably."""
        now = self._runtime.clock.now()
        with self._catalog.writing() as txn:
            live = [lease.begun_at for lease in txn.leases() if lease.expires_at > now]
            txn.set_horizon(Micros(min([now - age_us, *live])))  # never goes back
            self.report.horizon = txn.horizon()
        self._dead_before = self.report.horizon
        manifest = newest_at(self._blobs)
        if manifest is not None and manifest >= now - limits.MANIFEST_PROTECTS_US:
            # A manifest taken after a blob became unused has no extent in it; the manifest before may have. The order
            # of the two times is uncertain, since they come from two clocks.
            self._dead_before = Micros(min(self.report.horizon, manifest - limits.CLOCKS_DIFFER_US))

    # logs and their extents

    def logs(self) -> None:
        """Removes extents outside all spans, and logs that nothing views and that are too old for a pending append."""
        after, count = LogId(0), 0
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.logs_after(after, limits.COLLECT_PAGE_ROWS)
                ready = [log for log in page if not self._isolation.is_backing_off(log.stream)]
                garbage, failures = self._garbage(snapshot, ready)
            for stream, error in failures:
                self._isolation.record_failure(stream, error)
            if garbage:
                self._require_intact("spans")
            self._trim_all(garbage)
            if not page:
                self._isolation.clear_failures()
                self.report.skipped = tuple(self._isolation.failed)
                return
            after = page[-1].id
            count += len(page)
            self._progress("logs", count, 0)

    def _garbage(
        self, snapshot: Reading, logs: Sequence[LogState]
    ) -> tuple[list[LogState], list[tuple[StreamId, Exception]]]:
        """The logs with something to remove, and the streams whose logs could not be read, with the errors."""
        found: list[LogState] = []
        failures: list[tuple[StreamId, Exception]] = []
        for log in logs:
            try:
                if self._has_garbage(snapshot, log):
                    found.append(log)
            except Exception as exc:  # a damaged row of one stream
                if self._isolation.is_fatal(exc):
                    raise
                failures.append((log.stream, exc))
        return found, failures

    def _has_garbage(self, snapshot: Reading, log: LogState) -> bool:
        """True if `_trim` would find something to do."""
        viewed = _view_of_log(snapshot, log)
        if viewed.empty:
            return log.low_water < log.length or not log.sealed or self._can_drop_log(log, viewed)
        if viewed.low > log.low_water or _first_garbage_at_end(snapshot, log, viewed.high, 1) < log.length:
            return True
        return any(_extents_to_empty(snapshot, log.id, hole, _EDGES) for hole in viewed.holes)

    def _can_drop_log(self, log: LogState, viewed: _ViewedPart) -> bool:
        # The log's row records what its writers appended. While an append may be retried, the row is kept, so that the
        # retry gets the first answer.
        return not viewed.named and log.appended_at < self.report.horizon

    def _trim_all(self, garbage: Sequence[LogState]) -> None:
        """Trims many small logs per transaction, and a large log in many transactions. If that fails, trims each log
        by itself, to find out which can't be trimmed."""
        pending = deque(garbage)
        while pending:
            batch, counts_before = list(pending), (self.report.extents, self.report.logs)
            try:
                with self._catalog.writing() as txn:
                    self._trim_some(txn, pending)
            except Exception as exc:
                self.report.extents, self.report.logs = counts_before
                if self._isolation.is_fatal(exc):
                    raise
                if len(batch) == 1:
                    self._isolation.record_failure(batch[0].stream, exc)
                    return
                for log in batch:
                    self._trim_all([log])
                return

    def _trim_some(self, txn: Writing, pending: deque[LogState]) -> None:
        budget = limits.COLLECT_PAGE_ROWS
        while pending and budget > 0:
            before = self.report.extents
            if not self._trim(txn, pending[0].id):
                pending.popleft()
            budget -= 1 + self.report.extents - before

    def _trim(self, txn: Writing, ident: LogId) -> bool:
        """Does one bounded step on one log; returns True if there may be more to do."""
        log = txn.logs([ident]).get(ident)
        if log is None:
            return False
        viewed = _view_of_log(txn, log)
        if viewed.empty:
            return self._drop_unviewed_log(txn, log, viewed)
        if viewed.low > log.low_water:
            return self._trim_head(txn, log, viewed.low)
        return self._empty_holes(txn, log.id, viewed.holes) or self._trim_tail(txn, log, viewed.high)

    def _drop_unviewed_log(self, txn: Writing, log: LogState, viewed: _ViewedPart) -> bool:
        """Removes a log without viewers: its extents now, its row once it is old."""
        log = replace(log, sealed=True)
        if log.low_water < log.length:
            return self._trim_head(txn, log, log.length)
        if self._can_drop_log(log, viewed):
            txn.drop_log(log.id)
            self.report.logs += 1
        else:
            txn.update_log(log)
        return False

    def _trim_head(self, txn: Writing, log: LogState, low: int) -> bool:
        """Drops a page of the extents entirely below `low`, and raises the low-water mark, so no new span can be
        created there."""
        page = txn.extents(log.id, log.low_water, low, limits.EXTENTS_PER_PLAN_MAX)
        is_last_page = len(page) < limits.EXTENTS_PER_PLAN_MAX
        stop = low if is_last_page else min(low, page[-1].stop)
        self.report.extents += txn.drop_extents(log.id, stop)
        txn.update_log(replace(log, low_water=stop))
        return True

    def _empty_holes(self, txn: Writing, log: LogId, found: Sequence[Range]) -> bool:
        """Removes about a page of the extents between viewed ranges; a marker replaces neighbouring extents. Returns
        True if there may be more."""
        budget = limits.EXTENTS_PER_PLAN_MAX
        for hole in found:
            while page := _extents_to_empty(txn, log, hole, limits.EXTENTS_PER_PLAN_MAX):
                if budget <= 0:
                    return True
                swapped = txn.swap_extents(log, page, [collected_marker(page)])
                assert swapped, "they were read in this transaction"
                self.report.extents += sum(extent.encoding != GONE for extent in page)
                budget -= len(page)
        return False

    def _trim_tail(self, txn: Writing, log: LogState, high: int) -> bool:
        """Removes a page of extents of a sealed log after the last position that a span views: a copy of a stream's
        beginning need not keep what followed. The log's length goes down, so no new span can be made there."""
        stop = _first_garbage_at_end(txn, log, high, limits.EXTENTS_PER_PLAN_MAX)
        last = txn.extent_before(log.id, stop)
        if stop == log.length or last is None:
            return False
        self.report.extents += txn.drop_extents(log.id, start=stop)
        txn.update_log(replace(log, length=stop, size=last.size_end))
        return True

    # blobs

    def dead_blobs(self) -> None:
        """Marks blobs without extents as dead, and removes those that were marked before the horizon."""
        after, count = BlobId(0), 0
        attached: set[str] = set()
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.blobs_after(after, limits.COLLECT_PAGE_ROWS)
                for row in page:  # nothing is removed if the catalog was tampered with
                    keys.parse(row.key)
                attached.update(found[0] for row in page if (found := keys.split_attached(row.key)))
                used = {row.id for row in page if snapshot.blob_in_use(row.id)}
            unused = [row for row in page if row.id not in used]
            revived = [row for row in page if row.id in used and row.dead_at is not None]
            if unused or revived:
                self._update_blobs(unused, revived)
            if not page:
                return self._detach(attached)
            after = page[-1].id
            count += len(page)
            self._progress("blobs", count, 0)

    def _detach(self, listed: set[str]) -> None:
        """Removes attachments none of whose files is listed any more."""
        with self._catalog.reading() as snapshot:
            places = [attachment for attachment, _ in snapshot.states(ATTACHMENT)]
        # An attachment under way has listed no file yet; one begun before the horizon can't be completed any more.
        unlisted = [name for name in places if name not in listed and _attached_at(name) < self.report.horizon]
        if unlisted:
            with self._catalog.writing() as txn:
                for name in unlisted:
                    txn.drop_state(ATTACHMENT, name)

    def _update_blobs(self, unused: list[BlobRow], revived: list[BlobRow]) -> None:
        now = self._runtime.clock.now()
        removed: list[BlobRow] = []
        if any(row.dead_at is not None and row.dead_at < self._dead_before for row in unused):
            self._require_intact("extents")
        with self._catalog.writing() as txn:
            # Present leases began while the blob was alive, even if their clock was ahead of this one.
            dead_since = Micros(max([now, *(lease.begun_at for lease in txn.leases())]))
            for row in revived:
                txn.set_blob_dead(row.id, None)
            for row in unused:
                if txn.blob_in_use(row.id):
                    continue  # published since
                if row.dead_at is None:
                    txn.set_blob_dead(row.id, dead_since)
                # Equal is not old enough: a lease begun at the horizon may have seen the blob alive.
                elif row.dead_at < self._dead_before:
                    removed.append(row)
                    continue
                self.report.blobs_waiting += 1
            txn.drop_blobs([row.id for row in removed])
        for row in removed:
            if keys.is_attached(row.key):
                continue  # a foreign file is only removed from the catalog, never deleted
            self._blobs.delete(row.key)
            self.report.blobs += 1
            self.report.bytes_freed += row.size

    def orphans(self) -> None:
        """Removes files begun before the horizon that the catalog does not list: they can't be committed any more.
        Leaves files alone whose names are not in the store's format."""
        count = 0
        with self._catalog.reading() as snapshot:
            reported = reported_times(snapshot)
        for prefix in keys.PREFIXES:
            old = (file for file in self._old_files(prefix) if keys.begun_at(file.key) not in reported)
            while page := list(islice(old, limits.COLLECT_PAGE_ROWS)):
                with self._catalog.reading() as snapshot:
                    ready = snapshot.blob_keys([file.key for file in page])
                if any(file.key not in ready for file in page):
                    self._require_intact("blobs")
                for file in page:
                    if file.key not in ready:
                        self._blobs.delete(file.key)
                        self.report.orphans += 1
                        self.report.bytes_freed += file.size
                count += len(page)
                self._progress("files", count, 0)

    def _old_files(self, prefix: str) -> Iterator[BlobInfo]:
        for file in self._blobs.list(prefix):
            begun_at = keys.begun_at(file.key)
            if begun_at is None:
                continue
            if begun_at >= self.report.horizon:
                return  # keys begin with their time
            yield file

    # expired rows

    def old_rows(self) -> None:
        """Removes old requests, writers and changes, and expired leases."""
        now = self._runtime.clock.now()
        self.report.leases = self._leases(now)
        self.report.requests = self._pages(
            lambda txn: txn.drop_requests_before(Micros(now - limits.REQUESTS_KEPT_US), limits.COLLECT_PAGE_ROWS)
        )
        self.report.writers = self._pages(
            lambda txn: txn.drop_progress_before(Micros(now - limits.WRITER_PROGRESS_KEPT_US), limits.COLLECT_PAGE_ROWS)
        )
        self.report.changes = self._pages(
            lambda txn: txn.drop_changes_before(Micros(now - limits.CHANGES_KEPT_US), limits.COLLECT_PAGE_ROWS)
        )

    def _leases(self, now: Micros) -> int:
        with self._catalog.reading() as snapshot:
            if all(lease.expires_at > now for lease in snapshot.leases()):
                return 0
        with self._catalog.writing() as txn:
            dead = [lease.id for lease in txn.leases() if lease.expires_at <= now]
            for lease in dead:
                txn.drop_lease(lease)
        return len(dead)

    def _pages(self, drop: Callable[[Writing], int]) -> int:
        total = 0
        while True:
            with self._catalog.writing() as txn:
                dropped = drop(txn)
            total += dropped
            if dropped < limits.COLLECT_PAGE_ROWS:
                return total


class _ViewedPart(NamedTuple):
    """The part of a log that its spans view: positions `low <= position < high`, except the `holes`. `named`: at least
    one span refers to the log, even if only with an empty range."""

    low: int
    high: int
    named: bool
    holes: Sequence[Range] = ()

    @property
    def empty(self) -> bool:
        """True if no span views anything."""
        return self.low >= self.high


def _view_of_log(snapshot: Reading, log: LogState) -> _ViewedPart:
    spans = [span for _, span in snapshot.spans_of_log(log.id)]
    if not (found := viewed_ranges(spans)):
        return _ViewedPart(0, 0, bool(spans))
    # More may follow the last span of an unsealed log; the log's tail is cut once it is sealed.
    return _ViewedPart(found[0][0], found[-1][1] if log.sealed else _NO_LIMIT, True, gaps(found))


def _extents_to_empty(snapshot: Reading, log: LogId, hole: Range, limit: int) -> list[Extent]:
    """Neighbouring extents in a hole that can be removed, among the first `limit` that reach into it."""
    return extents_in_hole(snapshot.extents(log, *hole, limit), hole)


def _first_garbage_at_end(snapshot: Reading, log: LogState, high: int, limit: int) -> int:
    """The start of the first of at most `limit` extents at a log's end that are wholly after `high`; else its
    length."""
    stop = log.length
    for _ in range(limit):
        if stop <= high:
            break
        last = snapshot.extent_before(log.id, stop)
        if last is None or last.start < high:
            break
        stop = last.start
    return stop


def _attached_at(attachment: str) -> int:
    return int(attachment.partition("-")[0], 16)
