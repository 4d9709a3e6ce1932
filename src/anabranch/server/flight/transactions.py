"""Transactions held by a broker: the client sends batches, which the broker stages.

The exchange is opened by a message `transaction` with the fields `consumer` (the client's unique id), and `ident` for a
transaction that was begun before, or `lease_s` for a new one. When the connection is lost, the client opens it again
with `ident`, on any broker, and sends the batches again that were not flushed; what it had flushed or committed counts
once, because flushes have the client's numbers and commits its id.

Requests: `writer` (`stream` a name, or `id`: its columns), `write` (`stream`, an id, with the rows), `flush` (`number`), `ping`, `info`,
`commit` (`note_time_us`, `writer`, `left`: how many events were not flushed), `abort` (`reason`), `close`.
"""

from __future__ import annotations

from contextlib import suppress

from anabranch import limits
from anabranch.errors import Conflict, InvalidArgument, StreamNotFound, TooLarge
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.model.transaction import TransactionState
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, unknown
from anabranch.transactions.record import TransactionRow, need_row
from anabranch.transactions.transaction import Transaction
from anabranch.transactions.writer import TransactionWriter
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, unpack_table
from anabranch.wire.sessions import check_consumer, transaction_fields


class TransactionSession:
    """One transaction of one client."""

    probe_s = limits.SESSION_PROBE_S
    silent_s = limits.SESSION_SILENT_S

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Begin or resume it. Raises what `Transactions.begin` raises."""
        self._broker = broker
        self._store = broker.store
        self._principal = principal
        fields = Fields(request.fields)
        self._consumer = check_consumer(fields.text("consumer"))
        self._writers: dict[StreamId, TransactionWriter] = {}
        self._unflushed_bytes = 0
        self._transaction: Transaction | None = None  # None where it is committed already
        self._ident = fields.optional_text("ident") or ""
        self._written: set[StreamId] = set()
        if self._ident:
            self._written.update(self._row().info.events)
            self.authorize()
        if self._ident and fields.flag("again") and self._is_committed():
            return
        lease_s = fields.seconds("lease_s")
        self._transaction = self._store.transactions.begin(
            self._ident or None, lease_s=limits.TRANSACTION_LEASE_S if lease_s is None else lease_s
        )
        self._transaction.act_for(self._consumer)
        self._ident = self._transaction.id

    def _is_committed(self) -> bool:
        return self._row().info.state is TransactionState.COMMITTED

    def _row(self) -> TransactionRow:
        with self._store.catalog.reading() as reading:
            return need_row(reading, self._ident)

    def authorize(self) -> None:
        """Each stream that is written to."""
        for stream in sorted(self._written | self._writers.keys()):
            with suppress(StreamNotFound):  # deleted meanwhile
                self._authorize(self._store.streams.view(stream).info)

    def _authorize(self, info: StreamInfo) -> None:
        self._broker.guard.authorize(self._principal, "write", str(info.name), verb="transactions.write")

    def opened(self) -> Frame:
        """The transaction's id and state."""
        return Frame("opened", fields={"ident": self._ident, "info": self._info()})

    def call(self, request: Frame) -> Frame:
        """See the module."""
        fields = Fields(request.fields)
        match request.verb:
            case "info":
                return Frame("info", fields={"info": self._info()})
            case "commit":
                return self._commit(fields)
            case "writer":
                return self._describe(fields)
            case "write":
                return self._write(fields, request)
            case "flush":
                self._open.flush(request=f"flush {self._consumer} {fields.count('number')}")
                self._unflushed_bytes = 0
            case "ping":
                self._open.ping()
            case "abort":
                self._open.abort(fields.text("reason"))
                return Frame("done", fields={"info": self._info()})
            case _:
                raise unknown(request)
        return Frame("done")

    def tell(self, message: Frame) -> None:
        """A sign of life."""

    def interrupt(self) -> None:
        """Nothing here waits for events."""

    def close(self, request: Frame | None) -> None:
        """The transaction stays open until its lease expires, or somebody resumes it."""

    @property
    def _open(self) -> Transaction:
        if self._transaction is None:
            raise InvalidArgument(f"transaction '{self._ident}' is already committed and can't be changed")
        return self._transaction

    def _info(self) -> dict[str, object]:
        return transaction_fields(self._row().info)

    def _describe(self, fields: Fields) -> Frame:
        ident = fields.optional_text("id")
        if ident is None:
            info = self._store.streams.get(fields.text("stream"))
        else:
            info = self._store.streams.view(_stream_id(ident)).info
        self._authorize(info)
        writer = self._open.writer(info.name)
        self._writers[info.id] = writer
        schema = info.schema
        described = {
            "stream": f"{info.id:016x}",
            "name": str(info.name),
            "key": schema.key,
            "time": schema.time,
            "raw": schema.raw,
        }
        return Frame("writer", fields=described, data=schema.columns.serialize())

    def _write(self, fields: Fields, request: Frame) -> Frame:
        stream = _stream_id(fields.text("stream"))
        writer = self._writers.get(stream)
        if writer is None:
            info = self._store.streams.view(stream).info
            self._authorize(info)
            writer = self._writers[stream] = self._open.writer(info.name)
        table = unpack_table(request.data)
        self._broker.guard.admit(self._principal, calls=0, bytes_=table.nbytes)
        if self._unflushed_bytes + table.nbytes > limits.TRANSACTION_UNFLUSHED_BYTES_MAX:
            limit = limits.TRANSACTION_UNFLUSHED_BYTES_MAX
            raise TooLarge("what a transaction holds before a flush", self._unflushed_bytes + table.nbytes, limit)
        self._open._require_writable()
        writer.write_batch(table)
        self._unflushed_bytes += table.nbytes
        return Frame("done")

    def _commit(self, fields: Fields) -> Frame:
        note_time, writer = fields.value("note_time_us"), fields.optional_text("writer")
        if self._transaction is not None:
            self._transaction.commit(note_time=note_time, writer=writer)
            return Frame("done", fields={"info": self._info()})
        if self._row().committer != self._consumer and (left := fields.count("left")):
            raise Conflict(
                f"another process committed transaction '{self._ident}' without {left:,} events written by this one"
            )
        return Frame("done", fields={"info": self._info()})


def _stream_id(text: str) -> StreamId:
    try:
        return StreamId(int(text, 16))
    except ValueError:
        raise InvalidArgument(f"expected a stream's id as 16 hex digits, got {text!r:.100}") from None
