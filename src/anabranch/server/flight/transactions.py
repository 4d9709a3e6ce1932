"""Transactions held by a broker: the client sends batches, which the broker stages.

The exchange is opened by a message `transaction` with the fields `consumer` (the client's unique id), and `ident` for a
transaction that was begun before, or `lease_s` for a new one. When the connection is lost, the client opens it again
with `ident`, on any broker, and sends again the batches that were not flushed. A repeated flush or commit takes effect
once, because flushes have the client's numbers and commits the client's id.

| request | fields |
|---|---|
| `writer` | `stream`, a name, or `id`; answered with the stream's columns |
| `write` | `stream`, an id; the rows are the data |
| `flush` | `number` |
| `commit` | `note_time_us`, `writer`; `left`: how many events were not flushed |
| `abort` | `reason` |
| `ping`, `info`, `close` | none |
"""

from __future__ import annotations

from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, Session, unknown
from anabranch.server.sessions.transaction import HeldTransaction
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, unpack_table
from anabranch.wire.sessions import check_consumer, stream_fields, transaction_fields


class TransactionSession(Session):
    """One transaction of one client. Once the exchange ends, it stays open until its lease expires, or somebody resumes it."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Begin or resume the transaction. Raises what `HeldTransaction` raises."""
        fields = Fields(request.fields)
        self._held = HeldTransaction(
            broker,
            principal,
            check_consumer(fields.text("consumer")),
            fields.optional_text("ident"),
            lease_s=fields.seconds("lease_s"),
            again=fields.flag("again"),
        )

    def authorize(self) -> None:
        self._held.authorize()

    def opened(self) -> Frame:
        """The transaction's id and state."""
        return Frame("opened", fields={"ident": self._held.ident, "info": self._info()})

    def call(self, request: Frame) -> Frame:
        """Answer a request; the docstring of the module lists them."""
        fields = Fields(request.fields)
        match request.verb:
            case "info":
                return Frame("info", fields={"info": self._info()})
            case "commit":
                note_time, writer = fields.value("note_time_us"), fields.optional_text("writer")
                self._held.commit(note_time=note_time, writer=writer, left=fields.optional_count("left") or 0)
                return Frame("done", fields={"info": self._info()})
            case "writer":
                return self._describe(fields)
            case "write":
                self._held.write(_stream_id(fields.text("stream")), unpack_table(request.data))
            case "flush":
                self._held.flush(fields.count("number"))
            case "ping":
                self._held.ping()
            case "abort":
                self._held.abort(fields.text("reason"))
                return Frame("done", fields={"info": self._info()})
            case _:
                raise unknown(request)
        return Frame("done")

    def _info(self) -> dict[str, object]:
        return transaction_fields(self._held.info)

    def _describe(self, fields: Fields) -> Frame:
        ident = fields.optional_text("id")
        info = self._held.stream(fields.text("stream") if ident is None else _stream_id(ident))
        return Frame("writer", fields=stream_fields(info), data=info.schema.columns.serialize())


def _stream_id(text: str) -> StreamId:
    try:
        return StreamId(int(text, 16))
    except ValueError:
        raise InvalidArgument(f"expected a stream's id as 16 hex digits, got {text!r:.100}") from None
