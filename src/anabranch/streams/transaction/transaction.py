"""A transaction as its owner holds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Final

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Lease, Reading, Writing
from anabranch.core.byte_stream import refuse_rows
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    Closed,
    Conflict,
    InvalidArgument,
    StreamNotFound,
    TransactionAborted,
)
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.model.times import to_micros
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.runtime.ids import token
from anabranch.runtime.interrupts import Undisturbed
from anabranch.runtime.ports import Runtime
from anabranch.streams.find import need_view
from anabranch.streams.publish import Publication, publish, written_down
from anabranch.streams.requests import Result, once
from anabranch.streams.stage import Staged, Stager
from anabranch.streams.transaction.kept import drop_kept, keep, kept
from anabranch.streams.transaction.row import KIND, Row, added, need_open, need_row, put_row
from anabranch.streams.transaction.writer import TransactionWriter

_TRIES: Final = 3
Fresh = dict[StreamId, tuple[Staged, ...]]
# Has a stream's writer, or None for the transaction alone, note a time; see `Transaction.commit`.
Note = Callable[[StreamId, str | None, Micros], None]


class Transaction:
    """Events for one or several streams that become visible together when it commits, or never. Thread-safe.

    `with store.transaction() as txn:` commits at the end, and aborts where an exception leaves the block. Nobody sees its
    events before; then they follow, in each segment, what others appended until then, those of one writer in the order
    they were written. Streams may be scaled meanwhile.

    It lives for as long as it is written to, pinged or flushed at least once per `lease_s`; else it is aborted by whoever
    comes by. What was flushed is durable, and any process can go on with it by its id; what was not is lost with the
    process. Collection waits for open transactions, as for every lease.
    """

    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        row: Row,
        *,
        changed: Callable[[], None],
        note: Note | None = None,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._row = row
        self._changed = changed
        self._note = note
        self._lock = runtime.tasks.lock()
        self._holder = token(runtime.ids)
        self._ended: TransactionState | None = None
        self._complete = False  # what it holds is being committed, or may be committed
        self._writers: dict[StreamId, TransactionWriter] = {}
        self._names: dict[str, str] = {}  # by how a stream is told that is there no more
        self._fresh: Fresh = {}
        self._flushing: tuple[str, Fresh] | None = None  # its request id and what it holds

    @classmethod
    def begin(
        cls,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        *,
        lease_s: float,
        changed: Callable[[], None],
        note: Note | None = None,
    ) -> Transaction:
        """A new transaction. Raises InvalidArgument for a lease that is none."""
        if not isinstance(lease_s, (int, float)) or not math.isfinite(lease_s):
            raise InvalidArgument(f"a lease is a number of seconds, not {lease_s!r}")
        if lease_s > limits.TRANSACTION_LEASE_S_MAX:
            raise InvalidArgument(
                f"a lease is of at most {limits.TRANSACTION_LEASE_S_MAX:.0f} seconds, not of {lease_s:g}"
            )
        lease_us = round(lease_s * 1_000_000)
        if lease_us <= 0:
            raise InvalidArgument(f"a lease of {lease_s:g} seconds would be over before it began")
        ident = token(runtime.ids)
        with catalog.writing(_subject(ident)) as txn:
            # A clock that was set back must not let the work begin behind the horizon.
            now = Micros(max(runtime.clock.now(), txn.horizon()))
            until = Micros(now + lease_us)
            info = TransactionInfo(ident, TransactionState.OPEN, now, until, None, {})
            row = Row(info, Lease(token(runtime.ids), KIND, ident, now, until), lease_us, 0)
            put_row(txn, row)
        return cls(catalog, blobs, runtime, row, changed=changed, note=note)

    @classmethod
    def resume(
        cls,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        ident: str,
        *,
        changed: Callable[[], None],
        note: Note | None = None,
    ) -> Transaction:
        """An open transaction that was begun elsewhere. Raises TransactionNotFound, TransactionAborted,
        InvalidArgument for one that is committed."""
        with catalog.reading() as txn:
            row = need_open(txn, ident)
        return cls(catalog, blobs, runtime, row, changed=changed, note=note)

    @property
    def id(self) -> str:
        """By which another process finds it."""
        return self._row.info.id

    @property
    def info(self) -> TransactionInfo:
        """What the catalog says of it. Raises TransactionNotFound, long after its end."""
        with self._catalog.reading() as txn:
            return need_row(txn, self.id).info

    def writer(self, stream: str | StreamName) -> TransactionWriter:
        """The transaction's writer to a stream, always the same one. Raises StreamNotFound, StreamSealed, InvalidArgument for
        a stream of bytes."""
        with self._catalog.reading() as reading:
            view = need_view(reading, StreamName.parse(stream), unsealed=True)
        refuse_rows(view.info)
        with self._lock:
            self._alive()
            self._names[f"{view.info.id:016x}"] = str(view.info.name)
            return self._writers.setdefault(view.info.id, self._new_writer(view))

    def ping(self) -> None:
        """Begin the lease anew. Raises TransactionAborted."""
        with self._lock:
            self._alive()
            self._ping()

    def flush(self) -> None:
        """Make durable what was written so far; still nobody sees it, but it outlives this process. Begins the lease
        anew. Raises TransactionAborted, StoreUnavailable, AppendUncertain; asked again, it goes on where it was."""
        with self._lock:
            self._alive()
            self._keep()
            self._take()
            fresh = {stream: written_down(self._blobs, self._runtime, staged) for stream, staged in self._fresh.items()}
            with Undisturbed():  # between the two, what is flushed would be there twice
                self._flushing, self._fresh = (token(self._runtime.ids), fresh), {}
            self._keep()

    def commit(self, *, note_time: datetime | int | str | None = None, writer: str | None = None) -> None:
        """Let all events appear, durably. A second call is harmless, from another process too.

        `note_time` then tells the watermarks of its streams, as `Writer.note_time` does, that what `writer` writes from now on
        is not older. The writer is a name that the next transactions have in common, and is waited for until it notes a
        time again, or is idle; without one the time is that of this transaction alone, for which nobody waits. A crash
        before the time is noted leaves the watermark where it was. Raises InvalidArgument, when all is committed, for a
        time before the writer's last.

        Raises TransactionAborted; Conflict where another process has committed it, without what was written here since the
        last flush; StreamNotFound and StreamSealed for a stream that can't take its events any more, and
        then nothing has happened; AppendUncertain, and then calling again is right.
        """
        with self._lock:
            moment = None if note_time is None else to_micros(note_time)
            if self._ended is not TransactionState.COMMITTED:
                self._alive()
                self._keep()
                self._complete = True  # first: what is written from here on is refused, else it would be left out
                try:
                    self._take()
                    while not self._publish():
                        pass
                except AnabranchError as exc:
                    self._complete = isinstance(exc, AppendUncertain)
                    raise
                self._ended = TransactionState.COMMITTED
        self._changed()
        if moment is not None:
            self._note_time(moment, writer)

    def _note_time(self, moment: Micros, writer: str | None) -> None:
        if self._note is None:
            raise InvalidArgument("this transaction can't note times: take one of Store.transaction")
        for stream in sorted(self.info.events):
            with suppress(StreamNotFound):  # it was deleted meanwhile
                self._note(stream, writer, moment)

    def abort(self, reason: str = "its owner aborted it") -> None:
        """Let none of its events ever appear. A second call is harmless. Raises InvalidArgument if it is committed."""
        with self._lock:
            end(self._catalog, self._runtime, self.id, reason)
            self._ended = TransactionState.ABORTED
            self._fresh, self._flushing = {}, None

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None:
            return
        if error is None:
            try:
                self.commit()
                return
            except AppendUncertain:
                raise  # it may be committed
            except AnabranchError as exc:
                error = exc
                with suppress(AnabranchError):
                    self.abort(f"its commit was refused: {exc}")
                raise
        with suppress(AnabranchError):  # then it runs out by itself
            self.abort(f"{type(error).__name__} in its block")

    # needs the lock

    def _alive(self) -> None:
        if self._ended is TransactionState.ABORTED:
            raise TransactionAborted(self.id, None)
        if self._ended is not None:
            raise Closed("transaction")

    def _writable(self) -> None:
        # Needs no lock: a writer asks under its own, which `_take` waits for.
        self._alive()
        if self._complete:
            raise Closed("transaction")

    def _take(self) -> None:
        for stream, writer in self._writers.items():
            with Undisturbed():  # what a writer gave out, it gives out once
                if staged := writer.take():
                    self._fresh[stream] = self._fresh.get(stream, ()) + staged

    def _keep(self) -> None:
        """Have the catalog keep the flush at hand. One of which nobody knows whether it took place stays at hand, under its
        own request id, until that is known: else what it holds would be missing, or be there twice."""
        if self._flushing is None:
            return
        request, fresh = self._flushing

        def act(txn: Writing, now: Micros) -> Row:
            def note() -> Result:
                if need_row(txn, self.id).info.state is TransactionState.COMMITTED:
                    raise self._left_out(fresh)
                row = self._need_open(txn).prolonged(now)
                keep(txn, self.id, row.flushes, fresh)
                put_row(txn, row.flushed(_counts(fresh)))
                return {}

            once(txn, request, f"flush {self.id}", now, note)
            return need_row(txn, self.id)

        self._row = self._insist(act)
        self._flushing = None

    def _publish(self) -> bool:
        """False where another process has flushed into the transaction meanwhile."""
        with self._catalog.reading() as reading:
            seen = need_row(reading, self.id)
            parts = kept(reading, self.id)
        for stream, staged in self._fresh.items():
            parts[stream] = parts.get(stream, ()) + staged

        def settle(txn: Writing, now: Micros) -> None:
            row = self._need_open(txn)
            if row.flushes != seen.flushes:
                raise _FlushedMeanwhile
            events = added(row.info.events, _counts(self._fresh))
            put_row(txn, row.ended(TransactionState.COMMITTED, now).committed(events, self._holder))
            drop_kept(txn, self.id, row.flushes)

        publications = [Publication(stream, parts[stream]) for stream in sorted(parts)]
        try:
            ports = (self._catalog, self._blobs, self._runtime)
            first = publish(*ports, publications, request=_subject(self.id), settle=settle)
        except _FlushedMeanwhile:
            return False
        except StreamNotFound as exc:
            raise StreamNotFound(self._names.get(exc.stream, exc.stream)) from exc
        if not first:
            self._refuse_left_out()
        return True

    def _refuse_left_out(self) -> None:
        """It was committed before: here, where the answer was lost, or elsewhere, where nobody knew of what is fresh here."""
        with self._catalog.reading() as reading:
            committer = need_row(reading, self.id).committer
        if committer != self._holder and self._fresh:
            raise self._left_out(self._fresh)

    def _left_out(self, fresh: Fresh) -> Conflict:
        count = sum(_counts(fresh).values())
        return Conflict(f"transaction '{self.id}' was committed elsewhere, without {count:,} events from here")

    def _ping(self) -> None:
        def act(txn: Writing, now: Micros) -> Row:
            row = self._need_open(txn).prolonged(now)
            put_row(txn, row)
            return row

        self._row = self._insist(act)

    def _need_open(self, txn: Reading) -> Row:
        row = need_open(txn, self.id)
        if txn.horizon() > row.lease.begun_at:
            raise TransactionAborted(self.id, "its lease ran out, and what it staged may have been collected")
        return row

    def _insist(self, act: Callable[[Writing, Micros], Row]) -> Row:
        """Act in a transaction that may be repeated where its answer is lost."""
        for last in (False,) * (_TRIES - 1) + (True,):
            try:
                with self._catalog.writing(_subject(self.id)) as txn:
                    return act(txn, self._runtime.clock.now())
            except AppendUncertain:
                if last:
                    raise
        raise AssertionError

    def _new_writer(self, view: StreamView) -> TransactionWriter:
        def anew() -> Stager:
            with self._catalog.reading() as reading:
                return self._new_stager(need_view(reading, view.info.id))

        return TransactionWriter(self._new_stager(view), self._runtime, self._before_write, self._writable, anew)

    def _new_stager(self, view: StreamView) -> Stager:
        ranges = tuple(segment.range for segment in view.current)
        return Stager(self._blobs, self._runtime, view.info.schema, view.info.schema_version, ranges)

    def _before_write(self) -> None:
        self._writable()
        if self._row.info.expires_at - self._runtime.clock.now() < self._row.lease_us // 2:
            self.ping()


class _FlushedMeanwhile(Conflict):
    """Another process has flushed into the transaction that is being committed."""

    def __init__(self) -> None:
        super().__init__("another process flushed into the transaction while it was committed")


def end(catalog: Catalog, runtime: Runtime, ident: str, reason: str, *, expired_by: Micros | None = None) -> bool:
    """Abort a transaction; with `expired_by` only if its lease has run out by then. False where it was over already, or
    lives. Raises TransactionNotFound, InvalidArgument where it is committed and no `expired_by` was given."""
    with catalog.writing(_subject(ident)) as txn:
        row = need_row(txn, ident)
        if row.info.state is TransactionState.ABORTED:
            return False
        if row.info.state is TransactionState.COMMITTED:
            if expired_by is None:
                raise InvalidArgument(f"transaction '{ident}' is committed, so it can't be aborted")
            return False
        if expired_by is not None and row.info.expires_at > expired_by:
            return False
        put_row(txn, row.ended(TransactionState.ABORTED, runtime.clock.now(), reason))
        drop_kept(txn, ident, row.flushes)
        return True


def _subject(ident: str) -> str:
    return f"{KIND} {ident}"


def _counts(fresh: Fresh) -> dict[StreamId, int]:
    return {stream: sum(each.count for each in staged) for stream, staged in fresh.items()}
