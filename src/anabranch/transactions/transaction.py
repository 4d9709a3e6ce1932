"""The transaction object: writers, flush, commit, abort."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Lease, Writing
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    Conflict,
    InvalidArgument,
    StreamNotFound,
)
from anabranch.log.prewrite import since_lease
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.seconds import check_seconds
from anabranch.model.stream import StreamView
from anabranch.model.times import to_micros
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.directory.find import need_view
from anabranch.streams.publish import Publication, publish, write_blobs
from anabranch.streams.requests import Result, run_once
from anabranch.transactions.flushed import drop_flushes, flushed_batches, put_flush
from anabranch.transactions.outcome import TransactionOutcome
from anabranch.transactions.record import (
    KIND,
    TransactionRow,
    need_row,
    need_uncollected,
    put_row,
    sum_counts,
)
from anabranch.transactions.writer import TransactionWriter
from anabranch.writing.staging import StagedBatch, Stager

_ATTEMPTS_MAX: Final = 3
UnflushedBatches = dict[StreamId, tuple[StagedBatch, ...]]
# Notes a time for a stream as the named writer, or with None for the transaction alone; see `Transaction.commit`.
NoteTime = Callable[[StreamId, str | None, Micros], None]


class _PendingFlush(NamedTuple):
    """A pending flush: its request id (None: no flush is pending), its batches, and how many staged batches of each
    stream it and all earlier flushes hold. Replaced by one assignment, because an asynchronous exception (such as
    KeyboardInterrupt) may be raised between any two."""

    request: str | None
    batches: UnflushedBatches
    counts: dict[StreamId, int]


class Transaction(TransactionOutcome):
    """Events for one or several streams that become visible together when it commits, or never. Thread-safe.

    `with store.transaction() as txn:` commits at the end, and aborts if an exception leaves the block. Its events are
    invisible before the commit. At the commit they are appended at the tail of each segment, and those of one writer
    keep the order in which they were written. Streams may be scaled in between.

    It stays open as long as it is written to, pinged or flushed at least once per `lease_s`; otherwise any process that
    sweeps aborts it. Flushed events are durable, and any process can resume the transaction by its id; unflushed events
    are lost with the process. Collection waits for open transactions, as for every lease.
    """

    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        row: TransactionRow,
        *,
        changed: Callable[[], None],
        check_open: Callable[[], None],
        note: NoteTime,
    ) -> None:
        """`changed` is called after the commit; `check_open` raises Closed once the store is closed."""
        super().__init__(row.info.id)
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._row = row
        self._changed = changed
        self._check_open = check_open
        self._note = note
        self._lock = runtime.tasks.lock()
        self._holder = token(runtime.ids)
        self._writers: dict[StreamId, TransactionWriter] = {}
        self._names: dict[str, str] = {}  # stream names by hex id, for errors about streams that are gone
        self._unflushed: UnflushedBatches = {}
        self._pending_flush = _PendingFlush(None, {}, {})

    def act_for(self, consumer: str) -> None:
        """Act for a consumer in another process, which has this unique id. A commit that the consumer made through
        another object of this transaction counts as made by this object."""
        self._holder = consumer

    @property
    def info(self) -> TransactionInfo:
        """The transaction's state in the catalog. Raises TransactionNotFound once the state was removed, long after the
        transaction's end."""
        with self._catalog.reading() as txn:
            return need_row(txn, self.id).info

    def writer(self, stream: str | StreamName) -> TransactionWriter:
        """The transaction's writer to a stream, always the same one. Raises StreamNotFound, StreamSealed,
        InvalidArgument for a byte stream."""
        with self._catalog.reading() as reading:
            view = need_view(reading, StreamName.parse(stream), unsealed=True)
        reject_byte_stream(view.info)
        with self._lock:
            self._require_open()
            self._names[f"{view.info.id:016x}"] = str(view.info.name)
            return self._writers.setdefault(view.info.id, self._new_writer(view))

    def ping(self) -> None:
        """Renew the lease. Raises TransactionAborted."""
        with self._lock:
            self._require_open()
            self._ping()

    def flush(self, *, request: str | None = None) -> None:
        """Make durable what was written so far; it stays invisible, but survives this process. Renews the lease. Raises
        TransactionAborted, StoreUnavailable, AppendUncertain; a repeated call continues where the last one stopped.
        After a crash, the same events may be written again and flushed under the same `request` id: they count once."""
        with self._lock:
            self._require_open()
            self._record_flush()
            self._stage_unflushed()
            not_before = self._row.lease.begun_at
            batches = {
                stream: write_blobs(self._blobs, self._runtime, staged, not_before=not_before)
                for stream, staged in self._unflushed.items()
            }
            counts = self._pending_flush.counts
            counts = counts | {each: counts.get(each, 0) + len(staged) for each, staged in self._unflushed.items()}
            self._pending_flush = _PendingFlush(request or token(self._runtime.ids), batches, counts)
            self._unflushed = {}
            self._record_flush()

    def commit(self, *, note_time: datetime | int | str | None = None, writer: str | None = None) -> None:
        """Make all events visible, durably. A second call is harmless, from another process too.

        `note_time` then notes a time for the watermarks of its streams, as `Writer.note_time` does: later events of
        `writer` are not older. `writer` is a name that later transactions share; watermarks wait for it until it notes
        a time again, or is idle. Without a name, the time is that of this transaction alone, and watermarks do not wait
        for it. A crash before the time is noted leaves the watermark where it was. Raises InvalidArgument, after the
        commit, for a time before the writer's last.

        Raises TransactionAborted; Conflict where another process has committed it without the events written here since
        the last flush; StreamNotFound and StreamSealed for a stream that can no longer take its events, and then
        nothing was committed; AppendUncertain, and then the call should be repeated.
        """
        with self._lock:
            time_us = None if note_time is None else to_micros(note_time, self._runtime.settings.times)
            if self._ended is not TransactionState.COMMITTED:
                self._require_open()
                self._record_flush()
                self._committing = True  # first: writes from here on are refused, else they would be left out
                try:
                    self._stage_unflushed()
                    while not self._publish():
                        pass
                except AnabranchError as exc:
                    self._committing = isinstance(exc, AppendUncertain)
                    raise
                self._ended = TransactionState.COMMITTED
        self._changed()
        if time_us is not None:
            self._note_time(time_us, writer)

    def _note_time(self, time_us: Micros, writer: str | None) -> None:
        for stream in sorted(self.info.events):
            with suppress(StreamNotFound):  # deleted in between
                self._note(stream, writer, time_us)

    def abort(self, reason: str = "aborted by its owner") -> None:
        """Discard all its events. A second call is harmless. Raises InvalidArgument if it is committed."""
        with self._lock:
            abort_transaction(self._catalog, self._runtime, self.id, reason)
            self._ended = TransactionState.ABORTED
            self._unflushed, self._pending_flush = {}, _PendingFlush(None, {}, {})

    # needs the lock

    def _stage_unflushed(self) -> None:
        """Stage what was written since the last flush."""
        unflushed = {}
        for stream, writer in self._writers.items():
            if staged := writer.staged()[self._pending_flush.counts.get(stream, 0) :]:
                unflushed[stream] = staged
        self._unflushed = unflushed

    def _record_flush(self) -> None:
        """Record the pending flush in the catalog. A flush of unknown outcome stays pending, under its own request id,
        until the outcome is known: otherwise its contents would be missing or duplicated."""
        request, batches, counts = self._pending_flush
        if request is None:
            return

        def change(txn: Writing, now: Micros) -> TransactionRow:
            def note() -> Result:
                if need_row(txn, self.id).info.state is TransactionState.COMMITTED:
                    raise self._left_out_error(batches)
                row = need_uncollected(txn, self.id).renewed(now)
                put_flush(txn, self.id, row.flushes, batches)
                put_row(txn, row.flushed(_counts(batches)))
                return {}

            run_once(txn, request, f"flush {self.id}", now, note)
            return need_row(txn, self.id)

        self._row = self._run_in_catalog(change)
        self._pending_flush = _PendingFlush(None, {}, counts)

    def _publish(self) -> bool:
        """Publish the events. Returns False where another process flushed into the transaction in between."""
        with self._catalog.reading() as reading:
            row_before = need_row(reading, self.id)
            parts = flushed_batches(reading, self.id)
        for stream, staged in self._unflushed.items():
            parts[stream] = parts.get(stream, ()) + staged

        def before_append(txn: Writing, now: Micros) -> None:
            row = need_uncollected(txn, self.id)
            if row.flushes != row_before.flushes:
                raise _FlushedMeanwhile
            events = sum_counts(row.info.events, _counts(self._unflushed))
            put_row(txn, row.ended(TransactionState.COMMITTED, now).committed(events, self._holder))
            drop_flushes(txn, self.id, row.flushes)

        publications = [Publication(stream, parts[stream]) for stream in sorted(parts)]
        try:
            ports = (self._catalog, self._blobs, self._runtime)
            first = publish(*ports, publications, request=_subject(self.id), before_append=before_append)
        except _FlushedMeanwhile:
            return False
        except StreamNotFound as exc:
            raise StreamNotFound(self._names.get(exc.stream, exc.stream)) from exc
        if not first:
            self._check_nothing_left_out()
        return True

    def _check_nothing_left_out(self) -> None:
        """Raise Conflict if another process committed the transaction without the unflushed events here. No conflict if
        this object committed it, in an attempt whose outcome was unknown."""
        with self._catalog.reading() as reading:
            committer = need_row(reading, self.id).committer
        if committer != self._holder and self._unflushed:
            raise self._left_out_error(self._unflushed)

    def _left_out_error(self, batches: UnflushedBatches) -> Conflict:
        count = sum(_counts(batches).values())
        return Conflict(
            f"another process committed transaction '{self.id}' without {count:,} events written by this one"
        )

    def _ping(self) -> None:
        def change(txn: Writing, now: Micros) -> TransactionRow:
            row = need_uncollected(txn, self.id).renewed(now)
            put_row(txn, row)
            return row

        self._row = self._run_in_catalog(change)

    def _run_in_catalog(self, change: Callable[[Writing, Micros], TransactionRow]) -> TransactionRow:
        """Run `change` in a catalog transaction, and repeat it while its outcome is unknown."""
        for last in (False,) * (_ATTEMPTS_MAX - 1) + (True,):
            try:
                with self._catalog.writing(_subject(self.id)) as txn:
                    return change(txn, self._runtime.clock.now())
            except AppendUncertain:
                if last:
                    raise
        raise AssertionError

    def _new_writer(self, view: StreamView) -> TransactionWriter:
        def make_stager() -> Stager:
            with self._catalog.reading() as reading:
                return self._new_stager(need_view(reading, view.info.id))

        return TransactionWriter(
            self._new_stager(view), self._runtime, self._before_write, self._require_writable, make_stager, self.writer
        )

    def _new_stager(self, view: StreamView) -> Stager:
        ranges = tuple(segment.range for segment in view.current)
        schema, version = view.info.schema, view.info.schema_version
        earliest = since_lease(self._row.lease)
        return Stager(self._blobs, self._runtime, schema, version, ranges, earliest=earliest)

    def _require_open(self) -> None:
        super()._require_open()
        self._check_open()

    def _before_write(self) -> None:
        self._require_writable()
        if self._row.info.expires_at - self._runtime.clock.now() < self._row.lease_us // 2:
            self.ping()


class _FlushedMeanwhile(Conflict):
    """Another process has flushed into the transaction that is being committed."""

    def __init__(self) -> None:
        super().__init__("another process flushed into the transaction while it was committed")


def begin_transaction(catalog: Catalog, runtime: Runtime, lease_s: float) -> TransactionRow:
    """The row of a new transaction. Raises InvalidArgument for an invalid lease."""
    check_seconds("lease_s", lease_s)
    if lease_s > limits.TRANSACTION_LEASE_S_MAX:
        raise InvalidArgument(
            f"expected a lease of at most {limits.TRANSACTION_LEASE_S_MAX:.0f} seconds, got {lease_s:g}"
        )
    lease_us = round(lease_s * 1_000_000)
    if lease_us <= 0:
        raise InvalidArgument(f"expected a lease of more than 0 seconds, got {lease_s:g}")
    ident = token(runtime.ids)
    with catalog.writing(_subject(ident)) as txn:
        # With a clock that was set back, the work must not begin before the horizon.
        now = Micros(max(runtime.clock.now(), txn.horizon()))
        until = Micros(now + lease_us)
        info = TransactionInfo(ident, TransactionState.OPEN, now, until, None, {})
        row = TransactionRow(info, Lease(token(runtime.ids), KIND, ident, now, until), lease_us, 0)
        put_row(txn, row)
    return row


def abort_transaction(
    catalog: Catalog, runtime: Runtime, ident: str, reason: str, *, expired_by: Micros | None = None
) -> bool:
    """Abort a transaction; with `expired_by`, only if its lease has expired by that time. Returns False where the
    transaction had ended already, or its lease has not expired. Raises TransactionNotFound; without `expired_by`,
    InvalidArgument for a committed transaction."""
    with catalog.writing(_subject(ident)) as txn:
        row = need_row(txn, ident)
        if row.info.state is TransactionState.ABORTED:
            return False
        if row.info.state is TransactionState.COMMITTED:
            if expired_by is None:
                raise InvalidArgument(f"transaction '{ident}' is already committed and can't be aborted")
            return False
        if expired_by is not None and row.info.expires_at > expired_by:
            return False
        put_row(txn, row.ended(TransactionState.ABORTED, runtime.clock.now(), reason))
        drop_flushes(txn, ident, row.flushes)
        return True


def _subject(ident: str) -> str:
    return f"{KIND} {ident}"


def _counts(batches: UnflushedBatches) -> dict[StreamId, int]:
    return {stream: sum(each.count for each in staged) for stream, staged in batches.items()}
