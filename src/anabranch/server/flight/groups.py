"""Group readers held by a broker: the client requests batches one by one, and says how far it has processed them.

The exchange is opened by a message `group.read` with the fields `group`, `ident` (of the
group's state), `reader`, `delivery`, `batch_rows`, `stored` (the application stores the positions), and, so that the
same consumer can continue on another broker after its connection was lost, `consumer` (its unique id), `attempt` (how
many times it has opened the reader), and from the second time on `resets` (from the first answer), `handed_out` and
`processed` (positions).

Requests, each with `batch` (the number of the last batch, 0 before the first), `handed_out` (how many of its events were
handed to the application) and `whole` (the application got
the batch as a whole): `next` (a credit of one batch), `output` (rows for a stream, written by the next commit), `commit`,
`state`, `close` (`done`: what was handed out is processed). In the middle of a request the broker asks `checkpoint`
(call the callbacks) and `load` (the stored offset of a segment).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.membership import Opening
from anabranch.model.ids import StreamId
from anabranch.model.position import StreamSegment
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, Session, unknown
from anabranch.server.sessions.group_reader import HeldGroupReader
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, pack_table, unpack_table
from anabranch.wire.sessions import check_consumer, stream_fields


class GroupSession(Session):
    """One group reader of one client."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Open the reader. Raises what `HeldGroupReader` raises."""
        self._exchange = exchange
        self._batches = 0
        fields = Fields(request.fields)
        ident = fields.optional_count("ident")
        consumer = check_consumer(fields.text("consumer"))
        delivery: Any = fields.text("delivery")  # the reader checks it
        self._held = HeldGroupReader(
            broker,
            principal,
            fields.text("group"),
            fields.text("reader"),
            Opening(consumer, fields.count("attempt"), fields.optional_count("resets")),
            ident=None if ident is None else StreamId(ident),
            delivery=delivery,
            positions=_RemotePositions(exchange) if fields.flag("stored") else None,
            batch_rows=fields.count("batch_rows"),
            handed_out=fields.position("handed_out"),
            processed=fields.position("processed"),
            on_checkpoint=self._at_checkpoint,
        )
        self._reader = self._held.reader
        self.probe_s = self._reader.refresh_s
        self.silent_s = self._reader.lease_s

    def authorize(self) -> None:
        self._held.authorize()

    def opened(self) -> Frame:
        """The state of the reader that the client needs to continue."""
        reader = self._reader
        return Frame(
            "opened",
            fields={
                "resets": reader.resets,
                "output": reader.last_output,
                "group": reader.group,
                "position": str(reader.position),
            },
        )

    def call(self, request: Frame) -> Frame:
        """Answer a request; the docstring of the module lists them."""
        self.tell(request)
        match request.verb:
            case "next":
                return self._next(Fields(request.fields).seconds("timeout_s"))
            case "output":
                self._held.add_output(Fields(request.fields).text("stream"), unpack_table(request.data))
                return Frame("taken")
            case "commit":
                return Frame("committed", fields={"output": self._held.commit()})
            case "state":
                return self._state()
        raise unknown(request)

    def tell(self, message: Frame) -> None:
        """Note the client's progress."""
        fields = Fields(message.fields)
        # With another number, the client never got the last batch, which is then handed out again.
        if fields.count("batch") == self._batches:
            self._reader.advance(fields.count("handed_out"), whole=fields.flag("whole"))

    def interrupt(self) -> None:
        self._held.wake()

    def close(self, request: Frame | None) -> None:
        """Leave the group. Without a request, the batch that was handed out last is not accepted."""
        if request is not None:
            self.tell(request)
            if Fields(request.fields).flag("done"):
                self._reader.close()
                return
        self._reader.abandon()

    def _next(self, timeout_s: float | None) -> Frame:
        delivery = self._held.pull(timeout_s, self._exchange.interrupted)
        if delivery is None:
            return Frame("nothing", fields={"end": self._reader.at_end})
        self._batches += 1
        return _batch(delivery, self._batches, str(self._reader.position))

    def _state(self) -> Frame:
        segments = [str(each) for each in self._reader.segments]
        return Frame("state", fields={"position": str(self._reader.position), "segments": segments})

    def _at_checkpoint(self, name: str) -> None:
        answer = self._exchange.ask("checkpoint", name=name)
        if Fields(answer.fields).flag("failed"):
            raise _CallbackFailed


class _RemotePositions:
    """`StoredPositions` of an application at the other end of an exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """See `StoredPositions.load`."""
        fields = Fields(self._exchange.ask("load", segment=str(segment)).fields)
        if fields.flag("failed"):
            raise _CallbackFailed
        return fields.optional_count("offset")


class _CallbackFailed(AnabranchError):
    """A callback of the client raised an error, which the client knows."""


def _batch(delivery: GroupDelivery, number: int, position: str) -> Frame:
    rows, info = delivery.rows, delivery.view.info
    batch, appended = rows.batch, rows.appended
    if not isinstance(appended, int):
        batch = batch.append_column("_appended", appended)
    fields: Mapping[str, Any] = {
        "batch": number,
        **stream_fields(info),
        "segment": str(delivery.segment),
        "first": rows.first,
        "appended": appended if isinstance(appended, int) else None,
        "position": position,
    }
    return Frame("batch", fields=fields, data=pack_table(batch))
