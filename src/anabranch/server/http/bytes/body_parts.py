"""Stores the body of a request as it comes, in bounded memory."""

from __future__ import annotations

import asyncio
from functools import partial

from anabranch import limits
from anabranch.errors import TooLarge
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.writing.byte_writer import ByteWriter


async def store_body(call: HttpCall, writer: ByteWriter, *, bytes_max: int) -> None:
    """Append the body; returns once all of it is durable. A part is written while the next one comes. What came before
    an error stays: ClientDisconnect, RateLimited, TooLarge for a body over `bytes_max`, HttpRefusal where the broker
    stops, and what the writer raises."""
    part = bytearray()
    writing: asyncio.Future[None] | None = None
    taken = 0
    try:
        async for piece in call.request.stream():
            if call.front.draining:
                raise HttpRefusal(503, "draining", "the broker is stopping", Retry_After="1", Connection="close")
            call.front.guard.admit(call.principal, calls=0, bytes_=len(piece))
            taken += len(piece)
            part += piece[: len(piece) - max(0, taken - bytes_max)]
            if taken > bytes_max:
                raise TooLarge("the body of an upload", taken, bytes_max)
            if len(part) >= limits.UPLOAD_PART_BYTES:
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(call.front.run(partial(write_part, writer, bytes(part))))
                part.clear()
    finally:
        if writing is not None:
            await writing
        if part:
            await call.front.run(partial(write_part, writer, bytes(part)))


async def whole_body(call: HttpCall) -> bytes:
    """The body, which is to be verified before any of it is stored. Raises TooLarge, ClientDisconnect, RateLimited."""
    body = bytearray()
    async for piece in call.request.stream():
        call.front.guard.admit(call.principal, calls=0, bytes_=len(piece))
        body += piece
        if len(body) > limits.HTTP_BODY_BYTES_MAX:
            raise TooLarge("a body with a checksum", len(body), limits.HTTP_BODY_BYTES_MAX)
    return bytes(body)


def write_part(writer: ByteWriter, part: bytes) -> None:
    """Append a part; returns once it is durable."""
    writer.write(part)
    writer.flush()
