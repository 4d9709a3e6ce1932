"""Group readers held by a broker: the client requests batches one by one, and says how far it has processed them.

The exchange is opened by a message `group.read` with the fields `group`, `ident` (of the group's state), `reader`, `delivery`, `batch_rows`, `stored`
(the application stores the positions), and, so that the same consumer can continue on another broker after its
connection was lost, `consumer` (its unique id), `attempt` (how many times it has opened the reader), and from the second
time on `resets` (from the first answer), `handed_out` and `processed` (positions).

Requests, each with `batch` (the number of the last batch, 0 before the first), `handed_out` (how many of its events were
handed to the application) and `whole` (it got
the batch as a whole): `next` (a credit of one batch), `output` (rows for a stream, written by the next commit), `commit`,
`state`, `close` (`done`: what was handed out is processed). In the middle of a request the broker asks `checkpoint`
(call the callbacks) and `load` (the stored offset of a segment).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, GroupNotFound, TooLarge
from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.hosted import HostedGroupReader
from anabranch.groups.membership import Opening
from anabranch.model.position import StreamSegment
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, unknown
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, pack_table, unpack_table
from anabranch.wire.sessions import check_consumer


class GroupSession:
    """One group reader of one client."""

    def __init__(self, broker: Broker, principal: Principal, exchange: Exchange, request: Frame) -> None:
        """Open the reader. Raises what `ReaderGroup.reader` raises, and PermissionDenied."""
        self._broker = broker
        self._principal = principal
        self._exchange = exchange
        fields = Fields(request.fields)
        self._group = broker.store.groups.open(fields.text("group"))
        if fields.optional_count("ident") not in (None, self._group.id):
            raise GroupNotFound(self._group.name)
        self._batches = 0
        self._outputs: dict[str, list[pa.Table]] = {}
        self._output_bytes = 0
        self.authorize()
        self._reader = self._open(fields)
        self.probe_s = self._reader.refresh_s
        self.silent_s = self._reader.lease_s
        self._reader.on_checkpoint(self._at_checkpoint)

    def _open(self, fields: Fields) -> HostedGroupReader:
        consumer = check_consumer(fields.text("consumer"))
        opening = Opening(consumer, fields.count("attempt"), fields.optional_count("resets"))
        delivery: Any = fields.text("delivery")  # the reader checks it
        reader = self._group.hosted_reader(
            fields.text("reader"),
            opening,
            delivery=delivery,
            positions=_AskedPositions(self._exchange) if fields.flag("stored") else None,
            batch_rows=fields.count("batch_rows"),
        )
        try:
            handed_out = fields.position("handed_out").as_dict()
            if handed_out:
                reader.resume(handed_out, fields.position("processed").as_dict())
        except BaseException:
            reader.abandon()
            raise
        return reader

    def authorize(self) -> None:
        """Positions of the group are written, and its streams are read."""
        guard = self._broker.guard
        guard.authorize(self._principal, "write", self._group.name, verb="groups.read")
        for stream in self._group.streams:
            guard.authorize(self._principal, "read", stream, verb="groups.read")

    def opened(self) -> Frame:
        """What the client needs to know of the reader."""
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
        """See the module."""
        self.tell(request)
        match request.verb:
            case "next":
                return self._next(Fields(request.fields).seconds("timeout_s"))
            case "output":
                return self._take_output(request)
            case "commit":
                return self._commit()
            case "state":
                return self._state()
        raise unknown(request)

    def tell(self, message: Frame) -> None:
        """The client's progress."""
        fields = Fields(message.fields)
        if fields.count("batch") == self._batches:  # else the client never saw the last one: it is handed out again
            self._reader.advance(fields.count("handed_out"), whole=fields.flag("whole"))

    def interrupt(self) -> None:
        """See `Session.interrupt`."""
        self._reader.wake()

    def close(self, request: Frame | None) -> None:
        """Leave the group. Without a request, what was handed out last is not accepted."""
        if request is not None:
            self.tell(request)
            if Fields(request.fields).flag("done"):
                self._reader.close()
                return
        self._reader.abandon()

    def _next(self, timeout_s: float | None) -> Frame:
        wait_s = min(
            limits.SESSION_WAIT_S, self.silent_s / 4, limits.SESSION_WAIT_S if timeout_s is None else timeout_s
        )
        delivery = self._reader.pull(wait_s, self._exchange.interrupted)
        if delivery is None:
            return Frame("nothing", fields={"end": self._reader.at_end})
        self._broker.guard.admit(self._principal, calls=0, bytes_=delivery.rows.batch.nbytes)
        self._batches += 1
        return _batch(delivery, self._batches, str(self._reader.position))

    def _take_output(self, request: Frame) -> Frame:
        stream = str(self._broker.store.streams.get(Fields(request.fields).text("stream")).name)
        self._broker.guard.authorize(self._principal, "write", stream, verb="groups.commit")
        table = unpack_table(request.data)
        self._output_bytes += table.nbytes
        if self._output_bytes > limits.SESSION_OUTPUT_BYTES_MAX:
            size = self._output_bytes
            self._drop_outputs()
            raise TooLarge("the output of one commit", size, limits.SESSION_OUTPUT_BYTES_MAX)
        self._broker.guard.admit(self._principal, calls=0, bytes_=table.nbytes)
        self._outputs.setdefault(stream, []).append(table)
        return Frame("taken")

    def _commit(self) -> Frame:
        outputs = {stream: pa.concat_tables(tables) for stream, tables in self._outputs.items()}
        self._drop_outputs()
        self._reader.commit(outputs or None)
        return Frame("committed", fields={"output": self._reader.last_output})

    def _drop_outputs(self) -> None:
        self._outputs, self._output_bytes = {}, 0

    def _state(self) -> Frame:
        segments = [str(each) for each in self._reader.segments]
        return Frame("state", fields={"position": str(self._reader.position), "segments": segments})

    def _at_checkpoint(self, name: str) -> None:
        answer = self._exchange.ask("checkpoint", name=name)
        if Fields(answer.fields).flag("failed"):
            raise _CallbackFailed


class _AskedPositions:
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
        "stream": f"{info.id:016x}",
        "name": str(info.name),
        "segment": str(delivery.segment),
        "first": rows.first,
        "appended": appended if isinstance(appended, int) else None,
        "key": info.schema.key,
        "time": info.schema.time,
        "raw": info.schema.raw,
        "position": position,
    }
    return Frame("batch", fields=fields, data=pack_table(batch))
