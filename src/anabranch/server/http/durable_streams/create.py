"""`PUT /streams/…`: create a stream, or a fork of one. `DELETE`, `HEAD`."""

from __future__ import annotations

from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response

from anabranch.catalog.state.lineage import Fork
from anabranch.errors import ConditionFailed, InvalidArgument, StreamExists, StreamNotFound, StreamSealed
from anabranch.model.names import StreamName
from anabranch.server.calls import allowed_stream
from anabranch.server.http.body import read_body
from anabranch.server.http.calls import verb_result
from anabranch.server.http.durable_streams.append import write
from anabranch.server.http.durable_streams.config import StreamConfig, config_of_headers, same_type
from anabranch.server.http.durable_streams.forks import (
    ForkRequest,
    StreamGone,
    fork_of,
    is_deleted,
    make_fork,
    requested_fork,
)
from anabranch.server.http.durable_streams.forks import delete as delete_stream
from anabranch.server.http.durable_streams.messages import messages_of
from anabranch.server.http.durable_streams.pages import read_message
from anabranch.server.http.durable_streams.state import DurableStream, load
from anabranch.server.http.front import HttpCall, stream_of
from anabranch.server.http.problem import HttpRefusal


async def create_durable_stream(call: HttpCall) -> Response:
    """Create a Durable Stream. With a body it has its first messages; it may be a fork of another stream. The same request
    again changes nothing."""
    headers, front = call.request.headers, call.front
    name, config = stream_of(call.request), config_of_headers(headers)
    _authorize(call, name, config, writes=False)
    body = await read_body(call.request.receive, call.request.scope["headers"])
    front.guard.admit(call.principal, calls=0, bytes_=len(body))
    _authorize(call, name, config, writes=bool(body))
    origin = None
    if (asked := requested_fork(headers)) is not None:
        origin = await _origin(call, asked)
        config = _inherited(headers, config, origin.source.config)
    messages = messages_of(config, body) if body else []
    made = await _create(call, name, config, origin)
    stream = await _load(call, name)
    _authorize(call, str(stream.info.name), config, writes=bool(body))  # the path may hold an alias
    if not made:
        fork = await front.run(lambda: fork_of(front.store, stream.info.id))
        if not stream.config.equals(config) or not _same_fork(asked, origin, fork):
            raise HttpRefusal(409, "stream_exists", f"'{name}' exists with another configuration")
    messages = messages if origin is None else [*origin.prefix, *messages]
    begin = 0 if origin is None else origin.fork.offset
    if messages and stream.tail == begin and not stream.closed:
        await _begin(call, stream, messages)
    if config.created_closed:
        await front.run(lambda: front.store.streams.seal(stream.info.id))
    stream = await front.run(lambda: load(front, name))
    answer = {"Content-Type": stream.config.content_type, **stream.tail_headers()}
    if made:
        answer["Location"] = str(call.request.url.replace(query="", fragment=""))
    return Response(b"", 201 if made else 200, answer)


async def head_durable_stream(call: HttpCall) -> Response:
    """The metadata of a Durable Stream. They are in the headers."""
    stream = await call.front.run(lambda: load(call.front, str(call.info.name)))
    headers = {"Content-Type": stream.config.content_type, **stream.tail_headers(), "Cache-Control": "no-store"}
    if stream.config.ttl_s is not None:
        headers["Stream-TTL"] = str(stream.config.ttl_s)
    if stream.config.expires_at is not None:
        headers["Stream-Expires-At"] = stream.config.expires_at
    return Response(b"", 200, headers)


async def delete_durable_stream(call: HttpCall) -> Response:
    """Delete a Durable Stream."""
    front, guard, name = call.front, call.front.guard, stream_of(call.request)
    verb = "streams.delete"
    info = await front.run(lambda: allowed_stream(front.broker, call.principal, name, "manage", verb))
    if is_deleted(info):
        await front.run(lambda: load(front, name))  # raises StreamGone
    try:
        await front.run(lambda: delete_stream(front.store, info.id))
    except Exception as exc:
        guard.record(call.principal, verb, str(info.name), exc)
        raise
    guard.record(call.principal, verb, str(info.name), None)
    front.names.forget(name)
    return Response(status_code=204)


class _ForkOrigin(NamedTuple):
    """The stream that a fork is made of, and what the fork begins with beside the copy."""

    source: DurableStream
    fork: Fork
    prefix: list[bytes]


async def _origin(call: HttpCall, asked: ForkRequest) -> _ForkOrigin:
    """Looks up the source of a requested fork. Raises StreamNotFound, PermissionDenied, InvalidArgument for an offset that
    the source does not have, HttpRefusal (409) for a source that is deleted."""
    front = call.front
    info = await front.names.get(asked.source, call.principal, "read", verb="fork_durable_stream")
    source = await _load(call, str(info.name))
    offset = source.tail if asked.offset is None else asked.offset
    if source.config.json:  # each message of an array has an offset of its own
        fork = Fork(source.info.id, offset + asked.sub_offset, 0)
    else:
        fork = Fork(source.info.id, offset, asked.sub_offset)
    if not source.head <= offset <= fork.offset <= source.tail:
        raise InvalidArgument(f"'{asked.source}' holds the offsets {source.head} to {source.tail}, not {fork.offset}")
    if not fork.sub_offset:
        return _ForkOrigin(source, fork, [])
    message = b"".join(await front.run(lambda: read_message(front.store, source, offset)))
    if len(message) < fork.sub_offset:
        raise InvalidArgument(f"the message at {offset} has {len(message)} bytes, not {fork.sub_offset}")
    return _ForkOrigin(source, fork, [message[: fork.sub_offset]])


def _inherited(headers: Headers, config: StreamConfig, source: StreamConfig) -> StreamConfig:
    """The settings of a fork: those that the request leaves out are taken from the source."""
    if headers.get("content-type") and not same_type(config.content_type, source.content_type):
        raise HttpRefusal(
            409, "content_type_mismatch", f"the source holds {source.content_type}, not {config.content_type}"
        )
    if config.ttl_s is None and config.expires_at is None:
        config = config._replace(ttl_s=source.ttl_s, expires_at=source.expires_at)
    return config._replace(content_type=source.content_type)


def _same_fork(asked: ForkRequest | None, origin: _ForkOrigin | None, present: Fork | None) -> bool:
    """True if an existing stream is the fork that was requested. Without such a request: true if the stream is no fork."""
    if asked is None or origin is None or present is None:
        return asked is None and present is None
    if asked.offset is None:  # the source may have grown since
        return origin.fork.source == present.source and not present.sub_offset
    return origin.fork == present


async def _load(call: HttpCall, name: str) -> DurableStream:
    """Like `load`, but a deleted stream is a conflict. Raises HttpRefusal."""
    try:
        return await call.front.run(lambda: load(call.front, name))
    except StreamGone as exc:
        raise HttpRefusal(409, exc.code, str(exc)) from None


def _authorize(call: HttpCall, name: str, config: StreamConfig, *, writes: bool) -> None:
    call.front.guard.authorize(call.principal, "create", name, verb="create_durable_stream")
    if writes or config.created_closed:
        call.front.guard.authorize(call.principal, "write", name, verb="create_durable_stream")


async def _create(call: HttpCall, name: str, config: StreamConfig, origin: _ForkOrigin | None) -> bool:
    tags = config.tags(call.front.store.runtime.clock.now())
    for attempt in range(2):
        try:
            await _make(call, name, tags, origin)
        except StreamExists:
            if attempt:
                return False
            try:
                await _load(call, name)
            except StreamNotFound:  # it has expired meanwhile
                continue
            return False
        call.front.names.forget(name)
        return True
    raise AssertionError("the second attempt returns or raises")


async def _make(call: HttpCall, name: str, tags: dict[str, str], origin: _ForkOrigin | None) -> None:
    if origin is None:
        await verb_result(call, "streams.create", {"name": name, "tags": tags})
        return
    front, (source, fork, _) = call.front, origin
    target, end = StreamName.parse(name), source.cut(fork.offset)
    try:
        await front.run(lambda: make_fork(front.store, target, fork, end, tags))
    except Exception as exc:
        front.guard.record(call.principal, "streams.copy", name, exc)
        raise
    front.guard.record(call.principal, "streams.copy", name, None)


async def _begin(call: HttpCall, stream: DurableStream, messages: list[bytes]) -> None:
    """Append the first messages, unless another request did."""
    try:
        await write(call, stream, messages, expected=stream.tail)
    except (ConditionFailed, StreamSealed):
        return
