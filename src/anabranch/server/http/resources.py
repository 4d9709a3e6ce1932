"""Scopes and streams as resources: plain JSON for what people use most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

import pyarrow as pa
from starlette.responses import Response

from anabranch import limits
from anabranch.core.schema_text import parse_schema
from anabranch.errors import InvalidArgument
from anabranch.model.stream import Scope, StreamInfo
from anabranch.model.times import to_datetime
from anabranch.reading.bounds import to_cut
from anabranch.server.events.page import absolute, place
from anabranch.server.events.row_encoder import encode_rows
from anabranch.server.http.calls import answer_of, arguments_of, verb_result
from anabranch.server.http.front import HttpCall, stream_of
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.http.read import time_kind
from anabranch.wire.values import to_bytes, to_json
from anabranch.wire.verbs import VERBS

_OF_STREAM: Final = ("name", "stream", "source", "first", "part")
"""The verbs' names for the argument that is the stream."""


async def list_scopes(call: HttpCall) -> Response:
    """The scopes that the caller may read. They are in name order."""
    return await list_page(call, "scopes.list", ("pattern", "tag"), scope_json, lambda scope: scope.name)


async def list_streams(call: HttpCall) -> Response:
    """The streams that the caller may read. They are in name order."""
    return await list_page(
        call, "streams.list", ("scope", "pattern", "tag", "internal"), stream_json, lambda info: str(info.name)
    )


async def create_scope(call: HttpCall) -> Response:
    """Create a scope. The body has `name`, and optionally `tags` and `exist_ok`."""
    arguments = await arguments_of(call)
    return _created(scope_json(await verb_result(call, "scopes.create", arguments)))


async def create_stream(call: HttpCall) -> Response:
    """Create a stream. The body has `name`, `schema` as text (`sensor:string, at:timestamp`) or none for a raw stream,
    `key`, `time` and the other arguments of `streams.create`."""
    arguments = await arguments_of(call)
    if isinstance(arguments.get("schema"), str):
        arguments["schema"] = to_json(parse_schema(arguments["schema"]))
    return _created(stream_json(await verb_result(call, "streams.create", arguments)))


async def get_scope(call: HttpCall) -> Response:
    """One scope."""
    return json_response(scope_json(await verb_result(call, "scopes.get", {"name": call.request.path_params["scope"]})))


async def get_stream(call: HttpCall) -> Response:
    """One stream. It is found by its name or an alias."""
    return json_response(stream_json(await verb_result(call, "streams.get", {"name": stream_of(call.request)})))


async def delete_scope(call: HttpCall) -> Response:
    """Delete a scope. With `?recursive` its streams too."""
    arguments = {"name": call.request.path_params["scope"], "recursive": call.flag("recursive")}
    await verb_result(call, "scopes.delete", arguments)
    return Response(status_code=204)


async def delete_stream(call: HttpCall) -> Response:
    """Delete a stream."""
    await verb_result(call, "streams.delete", {"name": stream_of(call.request)})
    call.front.names.forget(stream_of(call.request))
    return Response(status_code=204)


async def call_stream(call: HttpCall) -> Response:
    """Call a verb on a stream, such as `:seal`. `POST /v1/streams/iot/sensors:seal` is `streams.seal` of that stream."""
    return await _call_noun(call, "streams", stream_of(call.request))


async def call_scope(call: HttpCall) -> Response:
    """Call a verb on a scope, such as `:rename`. `POST /v1/scopes/iot:rename` is `scopes.rename`."""
    return await _call_noun(call, "scopes", call.request.path_params["scope"])


async def get_cut(call: HttpCall) -> Response:
    """The cut at a position. `?at` is `head`, `tail`, a time, or a pointer."""
    now = call.front.store.runtime.clock.now()
    where, by = place(absolute(call.text("at") or "tail", now)), time_kind(call)

    def work() -> str:
        view = call.front.store.streams.view(call.info.name)
        return str(to_cut(call.front.store.internals.logs, view, where, by=by))

    return json_response({"cut": await call.front.run(work)})


def stream_json(info: StreamInfo) -> dict[str, Any]:
    """A stream as a resource."""
    schema = info.schema
    return {
        "name": str(info.name),
        "id": f"{info.id:016x}",
        "columns": [{"name": field.name, "type": _type_text(field.type)} for field in schema.columns],
        "checks": {each.name: each.condition for each in schema.checks},
        "key": schema.key,
        "time": schema.time,
        "raw": schema.raw,
        "tags": dict(info.tags),
        "created_at": time_text(info.created_at),
        "sealed": info.sealed,
        "epoch": info.epoch,
    }


def scope_json(scope: Scope) -> dict[str, Any]:
    """A scope as a resource."""
    return {
        "name": scope.name,
        "tags": dict(scope.tags),
        "created_at": time_text(scope.created_at),
    }


def time_text(micros: int | None) -> str | None:
    """A time as ISO 8601; outside the years 1 to 9999, which that can't tell, as a number of µs."""
    try:
        return None if micros is None else to_datetime(micros).isoformat()
    except InvalidArgument:
        return f"{micros} µs"


def _type_text(kind: pa.DataType) -> str:
    """The type as `parse_schema` reads it, where that has a word for it."""
    return "timestamp" if pa.types.is_timestamp(kind) and kind.tz else str(kind)


async def list_page(
    call: HttpCall,
    verb: str,
    filters: Iterable[str],
    shown: Callable[[Any], dict[str, Any]],
    name_of: Callable[[Any], Any],
    *,
    given: Mapping[str, Any] | None = None,
    parse_name: Callable[[str], Any] = str,
) -> Response:
    """A page: `{"items": […], "next": address or null}`. `after` is the last name of the previous page,
    parsed by `parse_name`. `given` are arguments that are not in the query string."""
    limit = call.count("limit", limits.HTTP_PAGE_EVENTS, most=limits.CATALOG_PAGE_ROWS)
    text = call.text("after")
    after = None if text is None else parse_name(text)
    arguments: dict[str, Any] = dict(given or {})
    for each in filters:
        if (value := call.text(each)) is not None:
            arguments[each] = call.flag(each) if each == "internal" else value
    found = await verb_result(call, verb, arguments)

    def page() -> list[Any]:
        wanted = (item for item in found if after is None or name_of(item) > after)
        return list(islice(wanted, (limit or 0) + 1))

    items = await call.front.run_long(page)
    more, items = len(items) > (limit or 0), items[:limit]
    following = None
    if more:
        query = [(name, value) for name, value in call.request.query_params.multi_items() if name != "after"]
        following = f"{call.request.scope['path']}?{urlencode([*query, ('after', name_of(items[-1]))])}"
    headers = {} if following is None else {"Link": f'<{following}>; rel="next"'}
    return json_response({"items": [shown(item) for item in items], "next": following}, headers=headers)


async def _call_noun(call: HttpCall, noun: str, name: str) -> Response:
    verb = VERBS.get(f"{noun}.{call.request.path_params['verb']}")
    parameter = None if verb is None else next(iter(verb.parameters), None)
    if verb is None or parameter not in (*_OF_STREAM, "scope") or verb.name.endswith((".create", ".list")):
        raise HttpRefusal(404, "no_such_verb", f"'{call.request.path_params['verb']:.100}' is not a verb of {noun}")
    arguments = await arguments_of(call)
    if parameter in arguments:
        raise InvalidArgument(f"'{parameter}' is given by the path")
    call.front.names.forget(name)
    return await answer_of(call, verb.name, {parameter: name, **arguments})


def json_response(value: Any, status: int = 200, *, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(to_bytes(value), status, headers, media_type="application/json")


def _created(value: dict[str, Any]) -> Response:
    noun = "streams" if "/" in value["name"] else "scopes"
    return Response(to_bytes(value), 201, {"Location": f"/v1/{noun}/{value['name']}"}, media_type="application/json")


async def latest_event(call: HttpCall) -> Response:
    """The last event with a routing key. `GET /v1/streams/{scope}/{name}/latest?key=…` answers with a row of the stream."""
    return await latest_of(call, call.info)


async def latest_of(call: HttpCall, info: StreamInfo, *, by_time: bool = False) -> Response:
    """The same of a stream that isn't named by the path. For `by_time` see `Store.latest`."""
    key = call.text("key")
    if key is None:
        raise InvalidArgument("expected the routing key of an event as ?key=…")
    found = await call.front.run_long(lambda: call.front.store.latest(info.name, key, by_time=by_time))
    if found is None:
        raise HttpRefusal(404, "event_not_found", f"'{info.name}' has no event with key '{key:.200}'")
    (body,) = encode_rows(found.row)
    assert found.appended_us is not None, "it was read from a stream"
    appended = to_datetime(found.appended_us).isoformat()
    headers = {"Anabranch-Pointer": str(found.pointer), "Anabranch-Appended": appended}
    return Response(body, media_type="application/json", headers=headers)
