"""ReadGroup: a reader of a group, held for the caller while the call lasts."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.membership import Opening
from anabranch.runtime.ids import token
from anabranch.server.events.row_decoder import RowDecoder
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.errors import draining
from anabranch.server.grpc.rows import batch_of, events_of
from anabranch.server.grpc.session import GrpcSession
from anabranch.server.sessions.group_reader import HeldGroupReader
from anabranch.wire.v1 import store_pb2 as v1


async def read_group(call: GrpcCall) -> None:
    """Serve the reader until it leaves, its caller is gone, or the broker ends."""
    session = GrpcSession(call, v1.ReadGroupRequest, silent_s=limits.GROUP_PROCESSING_S_MAX)
    request: v1.OpenGroupReader = await session.first("open")
    if request.batch_events < 0:
        raise InvalidArgument("batch_events is a number from 1 on, or 0")
    held = await session.run(partial(_open, session, request))
    reader = _GroupCall(session, held, meta=request.meta)
    session.begin(wake=held.wake, authorize=held.authorize)
    try:
        await reader.serve()
    finally:
        await session.end(reader.abandon)


def _open(session: GrpcSession, request: v1.OpenGroupReader) -> HeldGroupReader:
    call = session.call
    delivery: Any = request.delivery or "at_least_once"  # the reader checks it

    def at_checkpoint(name: str) -> None:
        session.ask(v1.ReadGroupResponse(checkpoint=v1.GroupCheckpoint(name=name)), "checkpoint_taken")

    return HeldGroupReader(
        call.front.broker,
        call.principal,
        request.group,
        request.reader,
        Opening(token(call.front.store.runtime.ids), 1),
        delivery=delivery,
        batch_rows=min(request.batch_events or limits.READER_ROWS_MAX, limits.READER_ROWS_MAX),
        on_checkpoint=at_checkpoint,
    )


class _GroupCall:
    """The requests of one reader."""

    def __init__(self, session: GrpcSession, held: HeldGroupReader, *, meta: bool) -> None:
        self._session = session
        self._call = session.call
        self._held = held
        self._meta = meta
        self._left = False

    async def serve(self) -> None:
        """Answer request after request."""
        position = await self._session.run(self._position)
        await self._send(opened=v1.GroupReaderOpened(position=position))
        while (given := await self._session.next()) is not None:
            match given:
                case ("next", request):
                    await self._next(request)
                case ("commit", request):
                    position = await self._session.run(partial(self._commit, request))
                    await self._send(committed=v1.GroupCommitted(position=position))
                case ("leave", request):
                    await self._session.run(partial(self._leave, request))
                    await self._send(left=v1.GroupLeft())
                    return
                case (name, _):
                    raise InvalidArgument(f"'{name}' is not expected here")

    def abandon(self) -> None:
        """Leave without accepting the last batch, unless the caller has left."""
        if not self._left:
            with suppress(AnabranchError):  # the group was deleted, or has given the reader up
                self._held.reader.abandon()

    async def _next(self, request: v1.NextGroupBatch) -> None:
        if request.timeout_ms < 0:
            raise InvalidArgument("timeout_ms is a number from 0 on")
        clock = self._call.front.store.runtime.clock
        deadline = clock.monotonic() + request.timeout_ms / 1e3 if request.HasField("timeout_ms") else None
        while True:
            left_s = None if deadline is None else max(0.0, deadline - clock.monotonic())
            messages = await self._session.run(partial(self._pull, left_s))
            if messages is None:
                await self._send(nothing=v1.GroupNothing(end=True))
                return
            for message in messages:
                await self._call.send(message)
            if messages:
                return
            if self._call.front.draining:
                raise draining()
            if deadline is not None and clock.monotonic() >= deadline:
                await self._send(nothing=v1.GroupNothing())
                return

    def _pull(self, timeout_s: float | None) -> list[bytes] | None:
        """The next batch as messages, none if there is none yet; None at the group's end."""
        self._held.reader.advance(0, whole=True)
        delivery = self._held.pull(timeout_s, self._session.interrupted)
        if delivery is None:
            return None if self._held.reader.at_end else []
        return _messages(delivery, meta=self._meta)

    def _commit(self, request: v1.CommitGroup) -> str:
        self._advance(request)
        store = self._call.front.store
        for output in request.outputs:
            decoder = RowDecoder(store.streams.get(output.stream).schema, store.runtime.settings.times)
            batch = batch_of(output.events, decoder, store.runtime.clock.now())
            self._held.add_output(output.stream, pa.Table.from_batches([batch]))
        self._held.commit()
        return self._position()

    def _leave(self, request: v1.LeaveGroup) -> None:
        self._advance(request)
        self._held.reader.close()
        self._left = True

    def _advance(self, request: v1.CommitGroup | v1.LeaveGroup) -> None:
        if request.events < 0:
            raise InvalidArgument("events is a number from 0 on")
        self._held.reader.advance(request.events, whole=not request.HasField("events"))

    def _position(self) -> str:
        return str(self._held.reader.position)

    async def _send(self, **answer: Any) -> None:
        await self._call.send(v1.ReadGroupResponse(**answer))


def _messages(delivery: GroupDelivery, *, meta: bool) -> list[bytes]:
    """A batch as serialized messages of about `limits.FOLLOW_SEND_BYTES`."""
    rows, info, segment = delivery.rows, delivery.view.info, delivery.segment.segment
    events = events_of(rows.batch, raw=info.schema.raw)
    if meta:
        appended = rows.appended
        times = [appended] * len(events) if isinstance(appended, int) else appended.cast("int64").to_pylist()
        prefix = f"{info.id:016x}{segment.packed:016x}"
        for number, (event, moment) in enumerate(zip(events, times, strict=True)):
            event.pointer, event.appended_us = f"{prefix}{rows.first + number:016x}", moment
    messages, first, size = [], 0, 0
    for number, event in enumerate(events, 1):
        size += event.ByteSize()
        if size >= limits.FOLLOW_SEND_BYTES or number == len(events):
            part = v1.GroupBatch(
                stream=str(info.name), segment=str(segment), events=events[first:number], more=number < len(events)
            )
            messages.append(v1.ReadGroupResponse(batch=part).SerializeToString())
            first, size = number, 0
    return messages
