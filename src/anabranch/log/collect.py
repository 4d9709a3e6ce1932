"""Collection: what no span views and no lease holds is removed. Nothing a stream can still see is ever touched.

The order makes every crash harmless. The horizon is advanced durably first, so that no blob begun before it can still
be committed. Extents go before their blobs; of a blob, the row goes before the file, so no row ever names a file that
is gone, and a file whose row is gone has a key older than the horizon: the next collection finds it as an orphan.
A reader with an older plan misses a blob and plans again.

For rebuilds two things more are kept: a blob that the newest manifest may name, though nothing views it since, for as
long as that manifest is not older than `limits.MANIFEST_HOLDS_US`; and the blobs that a rebuild has reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.attached import ATTACHMENT
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import BlobRow, Catalog, Reading, Writing
from anabranch.core.compaction import GONE
from anabranch.core.holes import Range, gaps, hollow, mark, viewed
from anabranch.log.manifest import newest_at
from anabranch.log.rebuild import kept
from anabranch.log.watch import Watch, silent
from anabranch.model.append import LogState
from anabranch.model.ids import BlobId, LogId, Micros
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime

FOR_EVER: Final = 1 << 62
# What reaches into a hole that has been emptied: one extent at each edge and the mark between them.
_EDGES: Final = 3


@dataclass(slots=True)
class CollectReport:
    """What a collection removed. Blobs that were found unused wait (`blobs_waiting`) until the horizon has passed the
    moment they were found; `bytes_freed` counts files, orphans among them. `streams` are ephemeral ones that nobody holds
    any more, if the caller has swept them."""

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
    seconds: float = 0.0


def collect(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    *,
    horizon_us: int | None = None,
    progress: Watch | None = None,
) -> CollectReport:
    """Remove garbage, in transactions of at most `limits.COLLECT_PAGE_ROWS` rows. Safe beside everything else, another
    collection too, and may end anywhere.

    `horizon_us` is the age at which an upload without a lease is given up (default: the settings'). With 0, uploads
    under way are refused and written again, and a blob is removed by the second collection that finds it unused.
    `progress` hears of logs, then blobs, then files. Raises StoreUnavailable and its kind.
    """
    age = runtime.settings.horizon_us if horizon_us is None else horizon_us
    began = runtime.clock.monotonic()
    collection = _Collection(catalog, blobs, runtime, progress or silent)
    collection.advance(age)
    collection.logs()
    collection.dead_blobs()
    collection.orphans()
    collection.old_rows()
    collection.report.seconds = runtime.clock.monotonic() - began
    return collection.report


class _Collection:
    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime, progress: Watch) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._progress = progress
        self._dead_before = Micros(0)
        self.report = CollectReport()

    def advance(self, age_us: int) -> None:
        """Advance the horizon as far as time and live leases allow, durably."""
        now = self._runtime.clock.now()
        with self._catalog.writing() as txn:
            live = [lease.begun_at for lease in txn.leases() if lease.expires_at > now]
            txn.set_horizon(Micros(min([now - age_us, *live])))  # which never goes back
            self.report.horizon = txn.horizon()
        self._dead_before = self.report.horizon
        manifest = newest_at(self._blobs)
        if manifest is not None and manifest >= now - limits.MANIFEST_HOLDS_US:
            # A manifest taken after a blob had died has no extent in it, the one before it may have. Which was first is
            # told by two clocks.
            self._dead_before = Micros(min(self.report.horizon, manifest - limits.CLOCKS_DIFFER_US))

    # logs and their extents

    def logs(self) -> None:
        """Drop extents outside all spans, and logs that nothing views and nobody can have appended to lately."""
        after, seen = LogId(0), 0
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.logs_after(after, limits.COLLECT_PAGE_ROWS)
                garbage = [log.id for log in page if self._excess(snapshot, log)]
            self._trim_all(garbage)
            if not page:
                return
            after = page[-1].id
            seen += len(page)
            self._progress("logs", seen, 0)

    def _excess(self, snapshot: Reading, log: LogState) -> bool:
        """True if `_trim` would find something to do."""
        viewed = _viewed(snapshot, log)
        if viewed.empty:
            return log.low_water < log.length or not log.sealed or self._forgettable(log, viewed)
        if viewed.low > log.low_water or _tail(snapshot, log, viewed.high, 1) < log.length:
            return True
        return any(_hollow(snapshot, log.id, hole, _EDGES) for hole in viewed.holes)

    def _forgettable(self, log: LogState, viewed: _Viewed) -> bool:
        # The log's row keeps what its writers landed: whoever still retries an append to it gets the first answer.
        return not viewed.named and log.appended_at < self.report.horizon

    def _trim_all(self, garbage: Sequence[LogId]) -> None:
        """Many logs a transaction where they are small, many transactions a log where it is large."""
        left = deque(garbage)
        while left:
            with self._catalog.writing() as txn:
                room = limits.COLLECT_PAGE_ROWS
                while left and room > 0:
                    before = self.report.extents
                    if not self._trim(txn, left[0]):
                        left.popleft()
                    room -= 1 + self.report.extents - before

    def _trim(self, txn: Writing, ident: LogId) -> bool:
        """One bounded step on one log; True if there may be more to do."""
        log = txn.logs([ident]).get(ident)
        if log is None:
            return False
        viewed = _viewed(txn, log)
        if viewed.empty:
            return self._bury(txn, log, viewed)
        if viewed.low > log.low_water:
            return self._trim_head(txn, log, viewed.low)
        return self._empty_holes(txn, log.id, viewed.holes) or self._trim_tail(txn, log, viewed.high)

    def _bury(self, txn: Writing, log: LogState, viewed: _Viewed) -> bool:
        """A log that nothing views: its extents go now, its row once it is old."""
        log = replace(log, sealed=True)
        if log.low_water < log.length:
            return self._trim_head(txn, log, log.length)
        if self._forgettable(log, viewed):
            txn.drop_log(log.id)
            self.report.logs += 1
        else:
            txn.update_log(log)
        return False

    def _trim_head(self, txn: Writing, log: LogState, low: int) -> bool:
        """Drop a page of the extents wholly below `low`, and raise the low-water mark with it, so that no span is made
        there any more."""
        page = txn.extents(log.id, log.low_water, low, limits.EXTENTS_PER_PLAN_MAX)
        whole = len(page) < limits.EXTENTS_PER_PLAN_MAX
        stop = low if whole else min(low, page[-1].stop)
        self.report.extents += txn.drop_extents(log.id, stop)
        txn.update_log(replace(log, low_water=stop))
        return True

    def _empty_holes(self, txn: Writing, log: LogId, found: Sequence[Range]) -> bool:
        """Let extents go that lie between what is viewed, about a page of them; a mark stays in the place of neighbours.
        True if there may be more."""
        room = limits.EXTENTS_PER_PLAN_MAX
        for hole in found:
            while page := _hollow(txn, log, hole, limits.EXTENTS_PER_PLAN_MAX):
                if room <= 0:
                    return True
                swapped = txn.swap_extents(log, page, [mark(page)])
                assert swapped, "they were read in this transaction"
                self.report.extents += sum(extent.encoding != GONE for extent in page)
                room -= len(page)
        return False

    def _trim_tail(self, txn: Writing, log: LogState, high: int) -> bool:
        """Cut a page of extents off a sealed log, behind the last position that a span views: a copy of a stream's
        beginning need not keep what followed. The log's length goes down, so no span is made there any more."""
        stop = _tail(txn, log, high, limits.EXTENTS_PER_PLAN_MAX)
        last = txn.extent_before(log.id, stop)
        if stop == log.length or last is None:
            return False
        self.report.extents += txn.drop_extents(log.id, start=stop)
        txn.update_log(replace(log, length=stop, size=last.size_end))
        return True

    # blobs

    def dead_blobs(self) -> None:
        """Mark blobs that no extent lies in, and remove those that were marked before the horizon."""
        after, seen = BlobId(0), 0
        attached: set[str] = set()
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.blobs_after(after, limits.COLLECT_PAGE_ROWS)
                attached.update(found[0] for row in page if (found := keys.split_attached(row.key)))
                used = {row.id for row in page if snapshot.blob_in_use(row.id)}
            unused = [row for row in page if row.id not in used]
            revived = [row for row in page if row.id in used and row.dead_at is not None]
            if unused or revived:
                self._settle(unused, revived)
            if not page:
                return self._detach(attached)
            after = page[-1].id
            seen += len(page)
            self._progress("blobs", seen, 0)

    def _detach(self, listed: set[str]) -> None:
        """Forget attachments none of whose files is listed any more."""
        with self._catalog.reading() as snapshot:
            places = [piece.name for piece in snapshot.pieces(ATTACHMENT)]
        # One that is just being made has listed no file yet; none begun before the horizon can still be made.
        gone = [name for name in places if name not in listed and _attached_at(name) < self.report.horizon]
        if gone:
            with self._catalog.writing() as txn:
                for name in gone:
                    txn.drop_piece(ATTACHMENT, name)

    def _settle(self, unused: list[BlobRow], revived: list[BlobRow]) -> None:
        now = self._runtime.clock.now()
        removed: list[BlobRow] = []
        with self._catalog.writing() as txn:
            # Leases that are there now began when the blob was alive, be it by a clock that is ahead of this one.
            died = Micros(max([now, *(lease.begun_at for lease in txn.leases())]))
            for row in revived:
                txn.set_blob_dead(row.id, None)
            for row in unused:
                if txn.blob_in_use(row.id):
                    continue  # published since
                if row.dead_at is None:
                    txn.set_blob_dead(row.id, died)
                # Equal is not old enough: a lease begun at the horizon may have seen the blob alive.
                elif row.dead_at < self._dead_before:
                    removed.append(row)
                    continue
                self.report.blobs_waiting += 1
            txn.drop_blobs([row.id for row in removed])
        for row in removed:
            if keys.is_attached(row.key):
                continue  # somebody else's file is forgotten, never removed
            self._blobs.delete(row.key)
            self.report.blobs += 1
            self.report.bytes_freed += row.size

    def orphans(self) -> None:
        """Remove files begun before the horizon that the catalog does not list: none of them can be committed any
        more. Files with names of another make are left alone."""
        seen = 0
        with self._catalog.reading() as snapshot:
            reported = kept(snapshot)
        for prefix in keys.PREFIXES:
            old = (file for file in self._old_files(prefix) if keys.begun_at(file.key) not in reported)
            while page := list(islice(old, limits.COLLECT_PAGE_ROWS)):
                with self._catalog.reading() as snapshot:
                    known = snapshot.blob_keys([file.key for file in page])
                for file in page:
                    if file.key not in known:
                        self._blobs.delete(file.key)
                        self.report.orphans += 1
                        self.report.bytes_freed += file.size
                seen += len(page)
                self._progress("files", seen, 0)

    def _old_files(self, prefix: str) -> Iterator[BlobInfo]:
        for file in self._blobs.list(prefix):
            begun_at = keys.begun_at(file.key)
            if begun_at is None:
                continue
            if begun_at >= self.report.horizon:
                return  # keys begin with their time
            yield file

    # rows that have had their day

    def old_rows(self) -> None:
        """Forget old requests, writers, changes and leases that ran out."""
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


class _Viewed(NamedTuple):
    """What of a log its spans view: positions `low <= position < high`, but for the `holes`. `named`: a span refers to the
    log, be it one that holds nothing."""

    low: int
    high: int
    named: bool
    holes: Sequence[Range] = ()

    @property
    def empty(self) -> bool:
        """True if no span views anything."""
        return self.low >= self.high


def _viewed(snapshot: Reading, log: LogState) -> _Viewed:
    spans = [span for _, span in snapshot.spans_of_log(log.id)]
    if not (found := viewed(spans)):
        return _Viewed(0, 0, bool(spans))
    # Behind an unsealed log's last span there may be more to come; it is cut once it is sealed.
    return _Viewed(found[0][0], found[-1][1] if log.sealed else FOR_EVER, True, gaps(found))


def _hollow(snapshot: Reading, log: LogId, hole: Range, limit: int) -> list[Extent]:
    """Neighbouring extents in a hole that are to go, among the first `limit` that reach into it."""
    return hollow(snapshot.extents(log, *hole, limit), hole)


def _tail(snapshot: Reading, log: LogState, high: int, limit: int) -> int:
    """The start of the first of at most `limit` extents at a log's end that lie wholly behind `high`; its length where
    there are none."""
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
