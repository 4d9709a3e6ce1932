"""The service `anabranch.v1.Store`: authenticates the caller, and calls the module that carries out the RPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from anabranch.security.guard import Operation
from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog
from anabranch.server.events.front import EventFront
from anabranch.server.grpc.append import append, append_stream
from anabranch.server.grpc.call import Counted, GrpcCall, caller, peer_of
from anabranch.server.grpc.errors import abort, draining, outcome_of
from anabranch.server.grpc.group_reader import read_group
from anabranch.server.grpc.read import follow, read
from anabranch.server.grpc.transaction import transact
from anabranch.server.grpc.verbs import call_verb
from anabranch.wire.v1 import store_pb2 as v1

SERVICE: Final = v1.DESCRIPTOR.services_by_name["Store"]


class Method(NamedTuple):
    """What serves an RPC. With an `operation`, it is checked on the stream that the request names before `serve` is
    called, which is then given the stream as well; without one, `serve` checks. An answer of one message is returned, one of
    many is sent. `follows`: it has no end of its own."""

    serve: Callable[..., Awaitable[Any]]
    operation: Operation | None
    follows: bool = False


METHODS: Final = {
    "Append": Method(append, "write"),
    "AppendStream": Method(append_stream, None, follows=True),
    "Read": Method(read, "read"),
    "Follow": Method(follow, "read", follows=True),
    "Call": Method(call_verb, None),
    "ReadGroup": Method(read_group, None, follows=True),
    "Transact": Method(transact, None, follows=True),
}


def store_service(
    front: EventFront, counters: Counters, log: AccessLog | None, *, send_timeout_s: float
) -> grpc.GenericRpcHandler:
    """The handlers of all RPCs of the service."""
    handlers = {}
    for descriptor in SERVICE.methods:
        request, method = GetMessageClass(descriptor.input_type), METHODS[descriptor.name]
        rpc = _Rpc(front, counters, log, descriptor, method, request, send_timeout_s)
        handlers[descriptor.name] = rpc.handler()
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


@dataclass(frozen=True, slots=True)
class _Rpc:
    """An RPC: authenticates, checks, counts, and answers errors."""

    front: EventFront
    counters: Counters
    log: AccessLog | None
    descriptor: MethodDescriptor
    method: Method
    request: type[Message]
    send_timeout_s: float

    def handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        """What gRPC calls. Messages are bytes for it: what is none of ours is to be refused by us."""
        match self.descriptor.client_streaming, self.descriptor.server_streaming:
            case (False, False):
                return grpc.unary_unary_rpc_method_handler(self._unary)
            case (False, True):
                return grpc.unary_stream_rpc_method_handler(self._unary)
            case (True, True):
                return grpc.stream_stream_rpc_method_handler(self._many)
        raise AssertionError(f"no RPC has the shape of {self.descriptor.name}")

    async def _unary(self, data: bytes, context: Any) -> bytes | None:
        return await self._counting(context, data)

    async def _many(self, _: Any, context: Any) -> bytes | None:
        return await self._counting(context, None)

    async def _counting(self, context: Any, data: bytes | None) -> bytes | None:
        counted, outcome = Counted(self.descriptor.name), "failed"
        self.counters.began("grpc")
        # The call keeps its resources until its status is sent. A caller who reads nothing can delay that until it disconnects.
        holding = ExitStack()
        try:
            answer = await self._serve(counted, context, data, holding)
            outcome = "ok"
            return answer
        except asyncio.CancelledError:  # the caller has gone, which is how followers end
            outcome = "ok" if self.method.follows else "refused"
            raise
        except Exception as exc:
            outcome = outcome_of(exc)
            await abort(context, exc)
            raise
        finally:
            holding.close()
            self._ended(counted, context, outcome)

    async def _serve(self, counted: Counted, context: Any, data: bytes | None, holding: ExitStack) -> bytes | None:
        front, method = self.front, self.method
        if front.draining:
            raise draining()
        principal = caller(front.guard, context)
        counted.principal = principal.name
        front.guard.admit(principal)
        call = GrpcCall(front, context, principal, counted, self.send_timeout_s)
        holding.enter_context(front.guard.hold(principal, "followers" if method.follows else "connections"))
        holding.enter_context(front.guard.hold(principal, "memory", 0 if data is None else len(data)))
        if data is None:
            answer = await method.serve(call)
        else:
            request: Any = await call.received(self.request, data)
            if method.operation is None:
                answer = await method.serve(call, request)
            else:
                verb = self.descriptor.name.lower()
                info = await front.names.get(request.stream, principal, method.operation, verb=verb)
                answer = await method.serve(call, request, info)
        if answer is None:
            return None
        sent: bytes = answer.SerializeToString()
        counted.sent += len(sent)
        return sent

    def _ended(self, counted: Counted, context: Any, outcome: str) -> None:
        taken = time.monotonic() - counted.began
        seconds = None if self.method.follows else taken
        self.counters.ended("grpc", outcome, seconds, received=counted.received, sent=counted.sent)
        if self.log is not None:
            self.log.note(
                front_end="grpc",
                peer=peer_of(context),
                principal=counted.principal,
                method=counted.method,
                outcome=outcome,
                received=counted.received,
                sent=counted.sent,
                ms=round(taken * 1000, 2),
            )
