"""`GET /v1/streams/{scope}/{name}/events?follow`: events as they come, as NDJSON or as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument
from anabranch.model.columns import select_columns
from anabranch.model.cut import StreamCut
from anabranch.reading.bounds import Place
from anabranch.server.events.page import place
from anabranch.server.events.row_encoder import cuts_of, encode_rows
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal, problem_of
from anabranch.server.http.read import TYPES, range_of, wanted_form
from anabranch.server.tail.follower import Follower

_KEEP_ALIVE: Final = b": keep-alive\n\n"
_SEALED: Final = b"event: sealed\ndata: {}\n\n"


class FollowForm(NamedTuple):
    """How a follower gets its events. Followers with an equal `key` share what `encode` makes."""

    kind: str
    key: tuple[object, ...]
    encode: Callable[[pa.RecordBatch, StreamCut], list[bytes]]


async def follow(call: HttpCall) -> Response:
    """Events from a place on, until the caller goes or the stream is sealed."""
    form = wanted_form(call, default="ndjson")
    if form == "json":
        form = "ndjson"  # one object after another is all that can be followed
    if form not in ("ndjson", "sse"):
        raise HttpRefusal(406, "not_acceptable", "a stream is followed as application/x-ndjson or text/event-stream")
    asked = range_of(call)
    if asked.end is not None or asked.limit is not None or asked.between is not None:
        raise InvalidArgument("a follower takes neither to, limit nor between")
    names = select_columns(asked.columns, call.info.schema.columns)
    columns = None if asked.columns is None else tuple(names)
    resumed = call.request.headers.get("last-event-id")
    start: Place = resumed or place(asked.start)
    holding = call.front.guard.hold(call.principal, "followers")
    try:
        follower = await call.front.tails.follow(call.info, start, by=asked.by, rate=asked.rate)
    except BaseException:
        holding.release()
        raise
    encode = partial(_events if form == "sse" else _lines, columns=columns, meta=asked.meta)
    return FollowResponse(call, follower, FollowForm(form, (form, columns, asked.meta), encode), holding.release)


def _lines(batch: pa.RecordBatch, after: StreamCut, *, columns: Sequence[str] | None, meta: bool) -> list[bytes]:
    rows = encode_rows(batch, after=after if meta else None, columns=columns)
    return _joined([row + b"\n" for row in rows])


def _events(batch: pa.RecordBatch, after: StreamCut, *, columns: Sequence[str] | None, meta: bool) -> list[bytes]:
    """Each event's id is the cut behind it: with it as `Last-Event-ID`, a follower goes on exactly."""
    rows = encode_rows(batch, after=after if meta else None, columns=columns)
    ids = cuts_of(batch, after)
    return _joined([b"id: %b\ndata: %b\n\n" % (each.encode(), row) for each, row in zip(ids, rows, strict=True)])


def _joined(rows: Sequence[bytes]) -> list[bytes]:
    """Rows put together to parts of about `limits.FOLLOW_SEND_BYTES`; a part ends with a row."""
    parts, open_part, size = [], [], 0
    for row in rows:
        open_part.append(row)
        size += len(row)
        if size >= limits.FOLLOW_SEND_BYTES:
            parts.append(b"".join(open_part))
            open_part, size = [], 0
    return parts + [b"".join(open_part)] if open_part else parts


class FollowResponse(Response):
    """The answer to one follower. It ends when the caller goes, when the stream is sealed and read, with an error, when
    the broker drains, and when the server closes the connection of a caller who took nothing for too long."""

    def __init__(self, call: HttpCall, follower: Follower, form: FollowForm, release: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Anabranch-From": str(follower.position)}
        super().__init__(None, 200, headers, TYPES[form.kind])
        del self.headers["content-length"]
        self._call = call
        self._follower = follower
        self._form = form
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._serve(send))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and (error := work.exception()) is not None:
                raise error
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait((work, gone))
            self._follower.close()
            self._release()

    async def _serve(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            await self._deliver(send)
            last = _SEALED if self._form.kind == "sse" else b""
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            last = self._problem(exc)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _deliver(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        call, form = self._call, self._form
        idle = [_KEEP_ALIVE] if form.kind == "sse" else []
        check_at = loop.time() + limits.FOLLOW_RECHECK_S
        async for batch in self._follower.batches():
            if call.front.draining:
                raise Closed("broker")
            if loop.time() > check_at:
                check_at = loop.time() + limits.FOLLOW_RECHECK_S
                call.front.guard.authorize(call.principal, "read", str(call.info.name), verb="follow")
            for part in idle if batch is None else batch.encoded(form.key, form.encode):
                await send({"type": "http.response.body", "body": part, "more_body": True})

    def _problem(self, error: Exception) -> bytes:
        """The end of the answer: why it ends, and where to go on."""
        if isinstance(error, Closed):
            found = {"code": "draining", "detail": "the broker is stopping; follow again from the cut"}
        else:
            found = problem_of(error)
        found["cut"] = str(self._follower.position)
        text = msgspec.json.encode(found)
        return b"event: problem\ndata: %b\n\n" % text if self._form.kind == "sse" else b'{"_problem":%b}\n' % text


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
