"""Transact: a transaction, held for the caller while the call lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.runtime.ids import token
from anabranch.server.events.row_decoder import RowDecoder
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.rows import batch_of
from anabranch.server.grpc.session import GrpcSession
from anabranch.server.sessions.transaction import HeldTransaction
from anabranch.wire.sessions import check_consumer
from anabranch.wire.v1 import store_pb2 as v1


async def transact(call: GrpcCall) -> None:
    """Serve the transaction until it has ended, its caller is gone, or the broker ends. It stays open then, until its
    lease expires."""
    session = GrpcSession(call, v1.TransactRequest, silent_s=None)
    request: v1.OpenTransaction = await session.first("open")
    lease_s = limits.TRANSACTION_LEASE_S
    if request.HasField("lease_ms"):
        if request.lease_ms <= 0:
            raise InvalidArgument("expected lease_ms as a number of at least 1")
        lease_s = request.lease_ms / 1e3
    held = await session.run(partial(_open, call, request, lease_s))
    session.begin(wake=lambda: None, authorize=held.authorize)
    keeping = asyncio.ensure_future(_keep_alive(session, held, lease_s))
    serving = asyncio.ensure_future(_TransactionCall(session, held).serve())
    try:
        done, _ = await asyncio.wait((keeping, serving), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in (keeping, serving):
            task.cancel()
        await asyncio.wait((keeping, serving))
        await session.end(lambda: None)


def _open(call: GrpcCall, request: v1.OpenTransaction, lease_s: float) -> HeldTransaction:
    caller = check_consumer(request.caller) if request.caller else token(call.front.store.runtime.ids)
    again = bool(request.caller)
    return HeldTransaction(call.front.broker, call.principal, caller, request.id or None, lease_s=lease_s, again=again)


async def _keep_alive(session: GrpcSession, held: HeldTransaction, lease_s: float) -> None:
    """Prolong the lease while the call lasts. Raises what says that the transaction is gone."""
    while True:
        await asyncio.sleep(lease_s / 3)
        if held.open:
            await session.run(held.ping)


class _TransactionCall:
    """The requests of one transaction."""

    def __init__(self, session: GrpcSession, held: HeldTransaction) -> None:
        self._session = session
        self._held = held
        self._flushes = 0

    async def serve(self) -> None:
        """Answer request after request."""
        await self._send(opened=await self._session.run(self._state), session=self._session.token)
        while (given := await self._session.next()) is not None:
            match given:
                case ("write", request):
                    await self._done(partial(self._write, request))
                case ("flush", request):
                    await self._done(partial(self._flush, request))
                case ("commit", request):
                    await self._end(partial(self._commit, request))
                    return
                case ("abort", request):
                    await self._end(partial(self._held.abort, request.reason))
                    return
                case (name, _):
                    raise InvalidArgument(f"'{name}' is not expected here")

    async def _done(self, work: Callable[[], None]) -> None:
        await self._session.run(work)
        await self._send(done=v1.TransactionDone())

    async def _end(self, work: Callable[[], None]) -> None:
        await self._session.run(work)
        await self._send(ended=await self._session.run(self._state))

    def _write(self, request: v1.TransactionWrite) -> None:
        store = self._session.call.front.store
        info = self._held.stream(request.stream)
        decoder = RowDecoder(info.schema, store.runtime.settings.times)
        self._held.write(info.id, batch_of(request.events, decoder, store.runtime.clock.now()))

    def _flush(self, request: v1.TransactionFlush) -> None:
        if request.number < 0:
            raise InvalidArgument("expected number as a number of at least 0")
        self._flushes = request.number if request.HasField("number") else self._flushes + 1
        self._held.flush(self._flushes)

    def _commit(self, request: v1.TransactionCommit) -> None:
        if request.HasField("note_time_us") != bool(request.writer):
            raise InvalidArgument("pass both note_time_us and writer, or neither")
        note_time = request.note_time_us if request.HasField("note_time_us") else None
        self._held.commit(note_time=note_time, writer=request.writer or None)

    def _state(self) -> v1.TransactionState:
        info = self._held.info
        return v1.TransactionState(
            id=info.id,
            state=info.state.value,
            begun_us=info.begun_at,
            expires_us=info.expires_at,
            events={f"{stream:016x}": count for stream, count in info.events.items()},
        )

    async def _send(self, **answer: Any) -> None:
        await self._session.call.send(v1.TransactResponse(**answer))
