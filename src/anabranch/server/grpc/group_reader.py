"""ReadGroup: a reader of a group, held for the caller while the call lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, Closed, InvalidArgument
from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.membership import Opening
from anabranch.runtime.ids import token
from anabranch.server.events.row_decoder import RowDecoder
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.delivered import Delivered, DeliveredBatches
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
        raise InvalidArgument("expected batch_events as a number of at least 1, or 0")
    held = await session.run(partial(_open, session, request))
    reader = _GroupCall(session, held, request)
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
    """The requests of one reader: batches are delivered while others are received."""

    def __init__(self, session: GrpcSession, held: HeldGroupReader, request: v1.OpenGroupReader) -> None:
        self._session = session
        self._call = session.call
        self._held = held
        self._meta = request.meta
        self._by_commit = request.delivery == "exactly_once"
        self._requested: asyncio.Queue[v1.NextGroupBatch | None] = asyncio.Queue(limits.GROUP_BATCHES_AHEAD_MAX + 1)
        self._delivered = DeliveredBatches()
        self._leaving = False
        self._overtaken = False  # a `next` was not answered when the caller left
        self._left = False
        self._writing = False  # an answer is being written, so the caller may have it already

    async def serve(self) -> None:
        """Answer request after request."""
        position = await self._session.run(lambda: str(self._held.reader.position))
        await self._send(opened=v1.GroupReaderOpened(position=position), session=self._session.token)
        delivering = asyncio.ensure_future(self._deliver())
        receiving = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait((delivering, receiving), return_when=asyncio.FIRST_COMPLETED)
            if delivering.done():
                await delivering
            leave = await receiving
            await delivering
        finally:
            for task in (delivering, receiving):
                task.cancel()
            await asyncio.wait((delivering, receiving))
        if leave is not None:
            await self._session.run(partial(self._leave, leave))
            await self._send(left=v1.GroupLeft())

    def abandon(self) -> None:
        """Leave without accepting the last batch, unless the reader has already left."""
        if not self._left:
            with suppress(AnabranchError):  # the group was deleted, or has given the reader up
                self._held.reader.abandon()

    async def _receive(self) -> v1.LeaveGroup | None:
        """Take requests until the caller leaves, or sends no more (None)."""
        leave: v1.LeaveGroup | None = None
        while leave is None and (incoming := await self._session.next()) is not None:
            match incoming:
                case ("next", request):
                    self._request(request)
                case ("commit", request):
                    await self._commit(request)
                case ("checkpoint_taken", _):
                    self._session.answered("checkpoint_taken")
                case ("leave", request):
                    leave = request
                    self._leaving, self._overtaken = True, self._session.owing > 0
                    self._delivered.end()
                    self._session.give_up()
                case (name, _):
                    raise InvalidArgument(f"'{name}' is not expected here")
        self._requested.put_nowait(None)
        return leave

    def _request(self, request: v1.NextGroupBatch) -> None:
        if request.timeout_ms < 0:
            raise InvalidArgument("expected timeout_ms as a number of at least 0")
        owing = self._session.owing - self._writing
        if owing and not self._by_commit:
            raise InvalidArgument("'next' may be sent before the last answer only with delivery 'exactly_once'")
        if owing == limits.GROUP_BATCHES_AHEAD_MAX:
            raise InvalidArgument(f"at most {limits.GROUP_BATCHES_AHEAD_MAX:,} batches are requested ahead")
        self._session.owing += 1
        self._requested.put_nowait(request)

    async def _deliver(self) -> None:
        try:
            while (request := await self._requested.get()) is not None and not self._leaving:
                await self._answer(request)
                self._session.owing -= 1
                self._writing = False
        except Closed:  # the caller left instead of answering a question
            if not self._leaving:
                raise

    async def _answer(self, request: v1.NextGroupBatch) -> None:
        clock = self._call.front.store.runtime.clock
        deadline = clock.monotonic() + request.timeout_ms / 1e3 if request.HasField("timeout_ms") else None
        while True:
            left_s = None if deadline is None else max(0.0, deadline - clock.monotonic())
            delivery, handed_out, end = None, 0, False
            if await self._has_room(left_s):
                delivery, handed_out, end = await self._session.run(partial(self._pull, left_s))
            if self._leaving:
                return
            if delivery is not None:
                number = self._delivered.add(delivery, handed_out) if self._by_commit else 0
                messages = await self._call.front.run(partial(_messages, delivery, number, meta=self._meta))
                self._writing = True
                await self._session.send(*messages)
                return
            if self._call.front.draining:
                raise draining()
            if end or (deadline is not None and clock.monotonic() >= deadline):
                self._writing = True
                await self._send(nothing=v1.GroupNothing(end=end))
                return

    async def _has_room(self, timeout_s: float | None) -> bool:
        """Wait until enough batches are committed that another may be sent. Returns False after `timeout_s`."""
        self._session.blocked = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._delivered.room()
        except TimeoutError:
            return False
        finally:
            self._session.blocked = False
        return True

    def _pull(self, timeout_s: float | None) -> tuple[GroupDelivery | None, int, bool]:
        """The next batch, if there is one, how many events were handed out with it, and whether the group has ended."""
        reader = self._held.reader
        reader.advance(0, whole=True)
        delivery = self._held.pull(timeout_s, self._session.interrupted)
        if delivery is None:
            return None, 0, reader.at_end
        return delivery, reader.handed_out + delivery.rows.batch.num_rows, False

    async def _commit(self, request: v1.CommitGroup) -> None:
        if request.HasField("batch"):
            if request.HasField("events"):
                raise InvalidArgument("expected either 'batch' or 'events' in a commit, got both")
            delivered = self._delivered.through(request.batch)
            position = await self._session.run_beside(partial(self._commit_batch, request.outputs, delivered))
            self._delivered.forget(request.batch)
        else:
            if self._session.owing > self._writing:
                raise InvalidArgument("a commit needs 'batch' while a 'next' is not answered")
            position = await self._session.run(partial(self._commit_all, request))
            self._delivered.forget(None, keep_last=request.HasField("events"))
        await self._send(committed=v1.GroupCommitted(position=position))

    def _commit_batch(self, outputs: Iterable[v1.GroupOutput], delivered: Delivered) -> str:
        self._add_outputs(outputs)
        self._held.commit_to(delivered.positions, handed_out=delivered.handed_out)
        return str(self._held.reader.processed)

    def _commit_all(self, request: v1.CommitGroup) -> str:
        self._advance(request)
        self._add_outputs(request.outputs)
        self._held.commit()
        return str(self._held.reader.processed)

    def _add_outputs(self, outputs: Iterable[v1.GroupOutput]) -> None:
        store = self._call.front.store
        for output in outputs:
            decoder = RowDecoder(store.streams.get(output.stream).schema, store.runtime.settings.times)
            batch = batch_of(output.events, decoder, store.runtime.clock.now())
            self._held.add_output(output.stream, pa.Table.from_batches([batch]))

    def _leave(self, request: v1.LeaveGroup) -> None:
        # If a `next` was not answered, the current batch may be one that the caller has not seen.
        if not self._overtaken:
            self._advance(request)
        self._held.reader.close()
        self._left = True

    def _advance(self, request: v1.CommitGroup | v1.LeaveGroup) -> None:
        if request.events < 0:
            raise InvalidArgument("expected events as a number of at least 0")
        self._held.reader.advance(request.events, whole=not request.HasField("events"))

    async def _send(self, **answer: Any) -> None:
        await self._session.send(v1.ReadGroupResponse(**answer))


def _messages(delivery: GroupDelivery, number: int, *, meta: bool) -> list[bytes]:
    """A batch as serialized messages of about `limits.FOLLOW_SEND_BYTES`."""
    rows, info, segment = delivery.rows, delivery.view.info, delivery.segment.segment
    events = events_of(rows.batch, raw=info.schema.raw)
    if meta:
        appended = rows.appended
        times = [appended] * len(events) if isinstance(appended, int) else appended.cast("int64").to_pylist()
        prefix = f"{info.id:016x}{segment.packed:016x}"
        for offset, (event, moment) in enumerate(zip(events, times, strict=True), rows.first):
            event.pointer, event.appended_us = f"{prefix}{offset:016x}", moment
    messages, first, size = [], 0, 0
    for behind, event in enumerate(events, 1):
        size += event.ByteSize()
        if size >= limits.FOLLOW_SEND_BYTES or behind == len(events):
            part = v1.GroupBatch(
                stream=str(info.name),
                segment=str(segment),
                events=events[first:behind],
                more=behind < len(events),
                number=number,
            )
            messages.append(v1.ReadGroupResponse(batch=part).SerializeToString())
            first, size = behind, 0
    return messages
