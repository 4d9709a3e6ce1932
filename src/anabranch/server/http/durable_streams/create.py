"""`PUT /streams/…`: create a stream. `DELETE`, `HEAD`."""

from __future__ import annotations

from starlette.responses import Response

from anabranch.errors import ConditionFailed, StreamExists, StreamNotFound, StreamSealed
from anabranch.server.http.body import read_body
from anabranch.server.http.calls import done
from anabranch.server.http.durable_streams.append import write
from anabranch.server.http.durable_streams.config import StreamConfig, config_of_headers
from anabranch.server.http.durable_streams.messages import messages_of
from anabranch.server.http.durable_streams.state import DurableStream, load
from anabranch.server.http.front import HttpCall
from anabranch.server.http.names import stream_of
from anabranch.server.http.problem import HttpRefusal


async def create(call: HttpCall) -> Response:
    """Create a stream, with its first messages if there is a body. The same request again changes nothing."""
    if "stream-forked-from" in call.request.headers:
        raise HttpRefusal(
            501, "forks_not_served", "forks are not served: copy the stream by POST /v1/call/streams.copy"
        )
    name, config = stream_of(call.request), config_of_headers(call.request.headers)
    _authorize(call, name, config, writes=False)
    body = await read_body(call.request.receive, call.request.scope["headers"])
    call.front.guard.admit(call.principal, calls=0, bytes_=len(body))
    _authorize(call, name, config, writes=bool(body))
    messages = messages_of(config, body) if body else []
    made = await _create(call, name, config)
    stream = await call.front.run(lambda: load(call.front, name))
    _authorize(call, str(stream.info.name), config, writes=bool(body))  # the path may hold an alias
    if not made and not stream.config.equals(config):
        raise HttpRefusal(409, "stream_exists", f"'{name}' exists with another configuration")
    if messages and stream.tail == 0 and not stream.closed:
        await _begin(call, stream, messages)
    if config.created_closed:
        await call.front.run(lambda: call.front.store.streams.seal(stream.info.id))
    stream = await call.front.run(lambda: load(call.front, name))
    headers = {"Content-Type": stream.config.content_type, **stream.tail_headers()}
    if made:
        headers["Location"] = str(call.request.url.replace(query="", fragment=""))
    return Response(b"", 201 if made else 200, headers)


async def head(call: HttpCall) -> Response:
    """What is known of a stream, without its data."""
    stream = await call.front.run(lambda: load(call.front, str(call.info.name)))
    headers = {"Content-Type": stream.config.content_type, **stream.tail_headers(), "Cache-Control": "no-store"}
    if stream.config.ttl_s is not None:
        headers["Stream-TTL"] = str(stream.config.ttl_s)
    if stream.config.expires_at is not None:
        headers["Stream-Expires-At"] = stream.config.expires_at
    return Response(b"", 200, headers)


async def delete(call: HttpCall) -> Response:
    """Delete a stream."""
    name = stream_of(call.request)
    await done(call, "streams.delete", {"name": name})
    call.front.names.forget(name)
    return Response(status_code=204)


def _authorize(call: HttpCall, name: str, config: StreamConfig, *, writes: bool) -> None:
    call.front.guard.authorize(call.principal, "create", name, verb="create_durable_stream")
    if writes or config.created_closed:
        call.front.guard.authorize(call.principal, "write", name, verb="create_durable_stream")


async def _create(call: HttpCall, name: str, config: StreamConfig) -> bool:
    tags = config.tags(call.front.store.runtime.clock.now())
    for attempt in range(2):
        try:
            await done(call, "streams.create", {"name": name, "tags": tags})
        except StreamExists:
            if attempt:
                return False
            try:
                await call.front.run(lambda: load(call.front, name))
            except StreamNotFound:  # its time was over
                continue
            return False
        call.front.names.forget(name)
        return True
    raise AssertionError("the second attempt returns or raises")


async def _begin(call: HttpCall, stream: DurableStream, messages: list[bytes]) -> None:
    """Append the first messages, unless another request did."""
    try:
        await write(call, stream, messages, expected=0)
    except (ConditionFailed, StreamSealed):
        return
