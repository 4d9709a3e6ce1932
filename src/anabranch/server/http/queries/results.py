"""`GET /v1/queries/{name}/results` and `/logs`: the events of a query's result stream, and its log, read and followed like the
events of any stream."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response
from starlette.types import ASGIApp

from anabranch.deployments.info import QueryInfo
from anabranch.deployments.record import log_stream
from anabranch.deployments.results import check_may_come, result_stream
from anabranch.errors import InvalidArgument, NoResultsYet, QueryNotFound, ScopeNotFound, StreamNotFound
from anabranch.model.stream import StreamInfo
from anabranch.server.http.calls import verb_result
from anabranch.server.http.delivery import begin, follow_request
from anabranch.server.http.follow import FollowResponse, read_or_follow
from anabranch.server.http.follow_socket import FollowSocket, check_socket
from anabranch.server.http.front import HttpCall
from anabranch.server.http.read import TYPES, follows, wanted_form
from anabranch.server.http.resources import latest_of

_NONE = {"json": b'{"events":[],"cut":"head","next":null}', "ndjson": b""}


async def query_results(call: HttpCall) -> Response:
    """Read the results of a query, or follow them. A follower waits for the results of a query that has none yet, as long as the
    query is to run."""
    found = await _look(call)
    if found is not None:
        return await read_or_follow(replace(call, stream=found))
    if not follows(call):
        raise NoResultsYet(call.request.path_params["name"], (await _query(call)).state)
    return FollowResponse(await begin(call, follow_request(call), lambda: _look(call)))


async def results_socket(call: HttpCall) -> ASGIApp:
    """As `query_results`, to a WebSocket."""
    check_socket(call)
    found = await _look(call)
    request = follow_request(call, kind="socket")
    return FollowSocket(await begin(call, request, (lambda: _look(call)) if found is None else found))


async def query_state(call: HttpCall) -> Response:
    """The last result with a routing key. It is the state of the query, of all that was published when it was called."""
    found = await _look(call, call.text("result"))
    if found is None:
        raise NoResultsYet(call.request.path_params["name"], (await _query(call)).state)
    return await latest_of(call, found, by_time=True)


async def _look(call: HttpCall, result: str | None = None) -> StreamInfo | None:
    """The result stream that the path means; None if it may still come. Raises PermissionDenied, QueryNotFound,
    NoResultsYet, InvalidArgument."""
    info = await _query(call)
    try:
        name = result_stream(info, result or call.request.path_params.get("result"))
    except InvalidArgument:  # it names streams
        call.front.guard.authorize(call.principal, "read", None, verb="results")
        raise
    if name is None:
        # Which stream it will be is not known yet, so neither is who may read it.
        call.front.guard.authorize(call.principal, "read", None, verb="results")
        check_may_come(info)
        return None
    try:
        return await call.front.names.get(name, call.principal, "read", verb="results")
    except (ScopeNotFound, StreamNotFound) as exc:
        if type(exc) not in (ScopeNotFound, StreamNotFound):
            raise
        check_may_come(info)
        return None


async def _query(call: HttpCall) -> QueryInfo:
    """The query. Only callers who may list queries learn that it does not exist."""
    name = call.request.path_params["name"]
    try:
        return await call.front.run(lambda: call.front.store.queries.get(name))
    except QueryNotFound:
        call.front.guard.authorize(call.principal, "read", None, verb="results")
        raise


async def query_logs(call: HttpCall) -> Response:
    """The log of a query: its starts, ends and failures. It begins when a host takes the query for the first time; a
    follower waits for that."""
    found = await _look_for_log(call)
    if found is None and follows(call):
        return FollowResponse(await begin(call, follow_request(call), lambda: _look_for_log(call)))
    form = wanted_form(call, default="json")
    if found is None and form in _NONE:
        return Response(_NONE[form], media_type=TYPES[form])
    if found is None:
        raise StreamNotFound(str(log_stream(call.request.path_params["name"])))
    return await read_or_follow(replace(call, stream=found))


async def _look_for_log(call: HttpCall) -> StreamInfo | None:
    name = call.request.path_params["name"]
    await verb_result(call, "queries.get", {"name": name})
    try:
        return await call.front.names.get(str(log_stream(name)), call.principal, "read", verb="logs")
    except (ScopeNotFound, StreamNotFound):
        return None
