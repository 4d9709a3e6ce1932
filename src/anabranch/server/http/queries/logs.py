"""`GET /v1/queries/{name}/logs`: the log of a query, read and followed as any stream."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from anabranch.deployments.record import log_stream
from anabranch.errors import ScopeNotFound, StreamNotFound
from anabranch.model.stream import StreamInfo
from anabranch.server.http.calls import verb_result
from anabranch.server.http.delivery import begin, follow_request
from anabranch.server.http.follow import FollowResponse, read_or_follow
from anabranch.server.http.front import HttpCall
from anabranch.server.http.read import TYPES, follows, wanted_form

_NONE = {"json": b'{"events":[],"cut":"head","next":null}', "ndjson": b""}


async def query_logs(call: HttpCall) -> Response:
    """The log of a query: its starts, ends and failures. It begins when a host takes the query for the first time; a
    follower waits for that."""
    found = await _look(call)
    if found is None and follows(call):
        return FollowResponse(await begin(call, follow_request(call), lambda: _look(call)))
    form = wanted_form(call, default="json")
    if found is None and form in _NONE:
        return Response(_NONE[form], media_type=TYPES[form])
    if found is None:
        raise StreamNotFound(str(log_stream(call.request.path_params["name"])))
    return await read_or_follow(replace(call, stream=found))


async def _look(call: HttpCall) -> StreamInfo | None:
    name = call.request.path_params["name"]
    await verb_result(call, "queries.get", {"name": name})
    try:
        return await call.front.names.get(str(log_stream(name)), call.principal, "read", verb="logs")
    except (ScopeNotFound, StreamNotFound):
        return None
