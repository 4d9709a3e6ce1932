"""Single events by the shortest way: many requests that come at once share a writer, a commit and one wake-up, and none of
them takes a thread. Whatever is not such an event goes to the endpoint."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from anabranch import limits
from anabranch.errors import Closed, SchemaMismatch
from anabranch.model.stream import StreamInfo
from anabranch.server.events.row_decoder import parse
from anabranch.server.events.writers import SharedWriter, append_value
from anabranch.server.http.access import authenticate
from anabranch.server.http.append import UNSAID, single_answer
from anabranch.server.http.body import read_body
from anabranch.server.http.front import HttpFront

_EVENTS: Final = re.compile(r"/v1/streams/([^/:]+/[^/:]+)/events")
_JSON: Final = b"application/json"
_LONG_WAY: Final = frozenset((b"content-encoding", b"transfer-encoding", b"expect", b"idempotency-key"))
_ANSWER_TYPE: Final = (b"content-type", b"application/json")


async def append_fast(front: HttpFront, scope: Scope, receive: Receive, send: Send) -> Receive | None:
    """Serve a request that appends one small JSON event to a stream that was used a moment ago. Returns None once it is
    answered; else what the endpoint is to receive from. Raises what the append was refused with."""
    writer = _writer_for(front, scope)
    if writer is None:
        return receive
    body = await read_body(receive, (), bytes_max=limits.HTTP_SMALL_BYTES)
    info, open_writer = writer
    if body.lstrip()[:1] == b"[" or open_writer.samples:
        return _again(body, receive)
    principal = authenticate(front.guard, scope)
    front.guard.authorize(principal, "write", str(info.name), verb="append")
    front.guard.admit(principal, bytes_=len(body))
    if open_writer.pending_bytes > limits.HTTP_PENDING_BYTES_MAX:
        await front.writers.make_room(open_writer)
    try:
        ack = append_value(open_writer, parse(body), len(body))
    except (Closed, SchemaMismatch):  # the stream may have got columns: the endpoint looks
        front.names.forget(str(info.name))
        return _again(body, receive)
    open_writer.pending_bytes += len(body)
    try:
        await front.writers.until_done(ack)
    finally:
        front.writers.release(open_writer, len(body))
    try:
        found = single_answer(ack.result(0))
    except Exception as exc:
        front.writers.forget(info, exc)
        raise
    headers = [_ANSWER_TYPE, (b"content-length", b"%d" % len(found))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": found})
    return None


def _writer_for(front: HttpFront, scope: Scope) -> tuple[StreamInfo, SharedWriter] | None:
    """The stream and its writer, if the request is to append to one and both are known."""
    if scope["method"] != "POST" or scope["query_string"]:
        return None
    match = _EVENTS.fullmatch(scope["path"])
    info = None if match is None else front.names.known(match[1])
    writer = None if info is None else front.writers.known(info)
    if info is None or writer is None or not _is_single(scope, raw=info.schema.raw):
        return None
    return info, writer


def _is_single(scope: Scope, *, raw: bool) -> bool:
    """True if the headers say that the body is small, plain JSON, which may be one event."""
    kind, length = b"", 0
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 10 else 0
        elif name in _LONG_WAY or name.startswith((b"producer-", b"anabranch-")):
            return False
    if not 0 < length <= limits.HTTP_SMALL_BYTES:
        return False
    return kind.partition(b";")[0] == _JSON or (not raw and kind.decode("latin-1") in UNSAID)


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read already."""
    given = False

    async def repeat() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return repeat
