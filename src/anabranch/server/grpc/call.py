"""A gRPC call that may be served, and who makes it: the bearer token of its metadata, and the name in its client certificate."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message

from anabranch import limits
from anabranch.security.guard import Guard, Principal, bearer_token
from anabranch.security.tls import name_in_certificate
from anabranch.server.events.front import EventFront
from anabranch.wire.commands import parse

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Counted:
    """The counts of a call for the metrics and the access log."""

    method: str
    began: float = field(default_factory=time.monotonic)
    received: int = 0
    sent: int = 0
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class GrpcCall:
    """One call. `send_timeout_s` is how long the caller may read nothing of an answer."""

    front: EventFront
    context: Any
    principal: Principal
    counted: Counted
    send_timeout_s: float

    async def received(self, kind: type[M], data: bytes) -> M:
        """A message of the caller. Raises InvalidArgument, RateLimited."""
        self.counted.received += len(data)
        self.front.guard.admit(self.principal, calls=0, bytes_=len(data))
        if len(data) > limits.HTTP_SMALL_BYTES:
            return await self.front.run(lambda: parse(kind, data))
        return parse(kind, data)

    async def receive(self, kind: type[M]) -> M | None:
        """The caller's next message of many; None once there are no more. Raises InvalidArgument, RateLimited."""
        data = await self.context.read()
        return None if data is grpc.aio.EOF else await self.received(kind, data)

    async def send(self, message: Message | bytes) -> None:
        """Send one message of many; waits until the connection takes it. Raises TimeoutError if the caller reads
        nothing for `send_timeout_s`."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        self.counted.sent += len(data)
        try:
            async with asyncio.timeout(self.send_timeout_s):
                await self.context.write(data)
        except TimeoutError:
            raise TimeoutError(f"the caller read nothing for {self.send_timeout_s:g} s") from None


def caller(guard: Guard, context: Any) -> Principal:
    """Who makes the call. Raises Unauthenticated, RateLimited."""
    token = None
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            token = bearer_token(value if isinstance(value, str) else value.decode("latin-1"))
            break
    certificates = context.auth_context().get("x509_pem_cert")
    return guard.authenticate(
        token=token, certificate=_certificate_name(certificates[0]) if certificates else None, peer=peer_of(context)
    )


def peer_of(context: Any) -> str:
    """The address of the machine that calls, without the port."""
    kind, _, place = unquote(context.peer()).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else place


@lru_cache(1024)
def _certificate_name(certificate: bytes) -> str | None:
    return name_in_certificate(certificate)
