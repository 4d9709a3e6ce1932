"""Transactions held by a broker; see `anabranch.transactions`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.python_rows import to_table
from anabranch.errors import AnabranchError, AppendUncertain, Closed, InvalidArgument, TransactionAborted
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.seconds import check_seconds
from anabranch.model.times import to_micros
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.remote.connection import Connection
from anabranch.remote.session import ConnectionLost, RemoteSession
from anabranch.remote.verbs import RemoteNoun
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.transactions.outcome import TransactionOutcome
from anabranch.transactions.writer import TransactionWriter
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, pack_table
from anabranch.wire.sessions import transaction_info


class _Unflushed(NamedTuple):
    """A batch that the broker has accepted but not flushed: kept, in case it must be sent again to another broker."""

    stream: StreamId
    rows: int
    data: pa.Buffer


class RemoteTransaction(TransactionOutcome):
    """Like `Transaction`, over a connection. When the connection is lost, the transaction is resumed on another broker:
    what was written since the last flush is sent again, and nothing counts twice. The client keeps unflushed batches,
    and flushes by itself when they exceed `limits.TRANSACTION_CLIENT_BYTES_MAX`. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        ident: str | None = None,
        *,
        lease_s: float = limits.TRANSACTION_LEASE_S,
        on_close: Callable[[RemoteTransaction], None] | None = None,
    ) -> None:
        super().__init__(ident)
        self._runtime = runtime
        self._clock = runtime.clock
        self._lease_s = lease_s
        self._on_close = on_close
        self._consumer = token(runtime.ids)
        self._again = False
        self._lock = runtime.tasks.lock()
        self._sending = runtime.tasks.lock()  # taken inside `_lock` and a writer's lock
        self._writers: dict[StreamId, TransactionWriter] = {}
        self._unflushed: list[_Unflushed] = []
        self._unflushed_bytes = 0
        self._flushes = 0
        self._sent_in = 1  # the opening of the session in which `_unflushed` was sent
        self._final: TransactionInfo | None = None  # once it has ended
        self._noted: tuple[int | None, str | None] = None, None  # the time and the writer of its commit
        self._landed = False  # the transaction was committed already when the session was last opened
        self._renewed_at = self._clock.monotonic()
        self._session = RemoteSession("transaction", connection, runtime, opening=self._opening, on_opened=self._opened)

    def _opening(self) -> Frame:
        fields = {"consumer": self._consumer, "ident": self._ident, "lease_s": self._lease_s, "again": self._again}
        return Frame("transaction", 0, fields)

    def _opened(self, frame: Frame) -> None:
        self._ident = Fields(frame.fields).text("ident")
        info = transaction_info(Fields(frame.fields).value("info"))
        self._landed = info.state is TransactionState.COMMITTED
        if not self._again:
            self._lease_s = min(self._lease_s, max(0.0, (info.expires_at - info.begun_at) / 1e6))
        self._again = True

    @property
    def info(self) -> TransactionInfo:
        """The transaction's state in the catalog; once this object has ended it, its final state."""
        if self._final is not None:
            return self._final
        return transaction_info(Fields(self._request("info", {}).fields).value("info"))

    def writer(self, stream: str | StreamName) -> TransactionWriter:
        """The transaction's writer to a stream; see `Transaction.writer`."""
        with self._lock:
            self._require_open()
            ident, schema = self._describe({"stream": str(stream)})
            known = self._writers.get(ident)
            if known is None:
                known = self._writers[ident] = TransactionWriter(
                    _BatchSender(self, ident, schema),
                    self._runtime,
                    self._before_write,
                    self._require_writable,
                    lambda: _BatchSender(self, ident, self._describe({"id": f"{ident:016x}"})[1]),
                )
            return known

    def ping(self) -> None:
        """Renew the lease. Raises TransactionAborted."""
        with self._lock:
            self._require_open()
            self._request("ping", {})
            self._renewed_at = self._clock.monotonic()

    def flush(self) -> None:
        """Make durable what was written so far; see `Transaction.flush`."""
        with self._lock:
            self._require_open()
            self._send_buffered()
            with self._sending:
                self._flush()

    def commit(self, *, note_time: datetime | int | str | None = None, writer: str | None = None) -> None:
        """Make all events visible, durably; see `Transaction.commit`. An answer that is lost with its connection is
        looked up."""
        with self._lock:
            time_us = None if note_time is None else to_micros(note_time, self._runtime.settings.times)
            if self._ended is not TransactionState.COMMITTED:
                self._require_open()
                self._committing = True  # first: writes from here on are refused, else they would be left out
                try:
                    self._send_buffered()
                    self._commit(time_us, writer)
                except AnabranchError as exc:
                    self._committing = isinstance(exc, AppendUncertain)
                    raise
                self._ended, self._noted = TransactionState.COMMITTED, (time_us, writer)
                self._unflushed, self._unflushed_bytes = [], 0
            elif time_us is not None and self._noted != (time_us, writer):
                raise InvalidArgument("a transaction of a broker notes its time with its first commit")
            self.close()

    def _commit(self, time_us: int | None, writer: str | None) -> None:
        left = sum(each.rows for each in self._unflushed)
        answer = self._request("commit", {"note_time_us": time_us, "writer": writer, "left": left})
        self._final = transaction_info(answer.fields.get("info"))

    def abort(self, reason: str = "aborted by its owner") -> None:
        """Discard all its events; see `Transaction.abort`."""
        with self._lock:
            if self._ended is not TransactionState.ABORTED:
                with suppress(TransactionAborted):
                    answer = self._request("abort", {"reason": reason}, again=False)
                    self._final = transaction_info(answer.fields.get("info"))
            self._ended = TransactionState.ABORTED
            self._unflushed, self._unflushed_bytes = [], 0
            self.close()

    def close(self) -> None:
        """Give up the session; an open transaction can be resumed by its id until its lease expires. A second call is
        harmless."""
        self._session.close({})
        if self._on_close is not None:
            self._on_close(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            with suppress(AnabranchError):
                self.close()

    # used by the writers

    def _require_open(self) -> None:
        super()._require_open()
        if self._session.closed:
            raise Closed("transaction")

    def _before_write(self) -> None:
        self._require_writable()
        if self._clock.monotonic() - self._renewed_at > self._lease_s / 2:
            self.ping()

    def _describe(self, stream: dict[str, Any]) -> tuple[StreamId, StreamSchema]:
        answer = self._request("writer", stream)
        fields = Fields(answer.fields)
        assert answer.data is not None, "a writer's answer has the columns"
        data = answer.data.to_pybytes()
        schema = StreamSchema.from_bytes(
            data, fields.optional_text("key"), fields.optional_text("time"), fields.flag("raw")
        )
        return StreamId(int(fields.text("stream"), 16)), schema

    def _write(self, stream: StreamId, table: pa.Table) -> None:
        """Send a batch, in parts; it is accepted once the broker has staged it."""
        rows = max(1, table.num_rows * limits.SESSION_PART_BYTES // max(1, table.nbytes))
        with self._sending:
            for start in range(0, max(1, table.num_rows), rows):
                part = table.slice(start, rows)
                batch = _Unflushed(stream, part.num_rows, pack_table(part))
                self._request_sending("write", {"stream": f"{stream:016x}"}, batch.data)
                self._unflushed.append(batch)
                self._unflushed_bytes += batch.data.size
                self._renewed_at = self._clock.monotonic()
                if self._unflushed_bytes > limits.TRANSACTION_CLIENT_BYTES_MAX:
                    self._flush()

    # requests

    def _send_buffered(self) -> None:
        for writer in list(self._writers.values()):
            writer.staged()

    def _flush(self) -> None:
        """Needs the lock for sending."""
        self._request_sending("flush", {"number": self._flushes})
        self._flushes += 1
        self._unflushed, self._unflushed_bytes = [], 0
        self._renewed_at = self._clock.monotonic()

    def _request(self, verb: str, fields: dict[str, Any], *, again: bool = True) -> Frame:
        with self._sending:
            return self._request_sending(verb, fields, again=again)

    def _request_sending(
        self, verb: str, fields: dict[str, Any], data: pa.Buffer | None = None, *, again: bool = True
    ) -> Frame:
        """Send a request, to another broker after each lost connection. With `again`, each further broker first gets
        the batches that were not flushed."""
        while True:
            with suppress(ConnectionLost):
                self._session.await_open()
                opening = self._session.opening
                if again and opening != self._sent_in and not self._landed:
                    for each in self._unflushed:
                        self._session.request(
                            "write", {"stream": f"{each.stream:016x}"}, data=each.data, opening=opening
                        )
                    self._sent_in = opening
                return self._session.request(verb, fields, data=data, opening=opening)


class _BatchSender:
    """What a writer of a transaction writes to: the connection."""

    def __init__(self, transaction: RemoteTransaction, stream: StreamId, schema: StreamSchema) -> None:
        self._transaction = transaction
        self._stream = stream
        self._schema = schema
        self._number = -1

    @property
    def schema(self) -> StreamSchema:
        """See `Staging.schema`."""
        return self._schema

    def write(self, data: Any, *, number: int | None = None) -> None:
        """See `Staging.write`. A batch of the same number was sent before."""
        if number is not None and number == self._number:
            return
        self._transaction._write(self._stream, to_table(data))
        if number is not None:
            self._number = number

    def make_room(self, size: int) -> None:
        """See `Staging.make_room`: the broker takes care of it."""

    def finish(self) -> tuple[()]:
        """The broker has all that was written."""
        return ()


class RemoteTransactions(RemoteNoun):
    """Transactions: begin or resume one, list them."""

    def begin(self, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S) -> RemoteTransaction:
        """See `Transactions.begin`."""
        check_seconds("lease_s", lease_s)
        own = self._own
        return own.keep(RemoteTransaction(own.connection, own.runtime, ident, lease_s=lease_s, on_close=own.forget))
