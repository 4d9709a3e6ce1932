"""`POST /v1/call/{verb}`: every management verb, by `anabranch.server.calls`, as in all front ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from anabranch.deployments.info import QueryInfo
from anabranch.errors import InvalidArgument, QueryNotFound
from anabranch.model.warn import Warned, issue_here
from anabranch.server.calls import run
from anabranch.server.http.body import read_body
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal, problem_of
from anabranch.server.steps import run_steps
from anabranch.wire.values import parse_bytes, to_bytes, to_json
from anabranch.wire.verbs import VERBS, StoreVerb
from anabranch.wire.warnings import warning_to_json

_ITEMS_AT_A_TIME: Final = 256


async def call_verb(call: HttpCall) -> Response:
    """Call a verb of the store. The arguments are the body, a JSON object; no body is no arguments."""
    name = call.request.path_params["verb"]
    if name not in VERBS:
        raise HttpRefusal(404, "no_such_verb", f"'{name:.100}' is not a verb; /v1/openapi.json lists them")
    return await answer_of(call, name, await arguments_of(call))


async def arguments_of(call: HttpCall) -> dict[str, Any]:
    """The JSON object in the body. Raises InvalidArgument."""
    body = await read_body(call.request.receive, call.request.scope["headers"])
    found = parse_bytes(body) if body.strip() else {}
    if not isinstance(found, dict):
        raise InvalidArgument("expected the arguments as a JSON object")
    return found


async def answer_of(call: HttpCall, name: str, arguments: Mapping[str, Any], *, status: int = 200) -> Response:
    """Call a verb, and answer `{"result": …}`, with `warnings` if it issued any; the items of a streaming verb one a line."""
    verb = VERBS[name]
    issued: list[Warning] = []
    result = await verb_result(call, name, arguments, warned=issued.append)
    if verb.streaming or isinstance(result, Iterator):
        return StreamingResponse(_lines(call, iter(result)), media_type="application/x-ndjson")
    return _answer("result", result, issued, status)


async def verb_result(call: HttpCall, name: str, arguments: Mapping[str, Any], *, warned: Warned = issue_here) -> Any:
    """Call a verb. An `Idempotency-Key` is its request id: a repeated call changes nothing and returns the first result.
    Raises InvalidArgument for a key of a verb that takes none, and what the verb raises."""
    given = with_request(VERBS[name], arguments, call.request.headers.get("idempotency-key"))
    front = call.front
    return await front.run_long(partial(run, front.broker, call.principal, name, given, warned=warned, admit=False))


def run_verb(call: HttpCall, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call a verb in this thread. Raises what the verb raises."""
    return run(call.front.broker, call.principal, name, arguments, admit=False)


def find_query(call: HttpCall, name: str | None = None) -> QueryInfo | None:
    """A deployed query, by default that of the path; None if there is none of this name."""
    try:
        return call.front.store.queries.get(name or call.request.path_params["name"])
    except QueryNotFound:
        return None


def with_request(verb: StoreVerb, arguments: Mapping[str, Any], key: str | None) -> Mapping[str, Any]:
    """The arguments, with the idempotency key as the request id."""
    if key is None or not verb.changes:
        return arguments
    if "request" not in verb.parameters:
        raise InvalidArgument(f"{verb.name} takes no Idempotency-Key")
    if arguments.get("request", key) != key:
        raise InvalidArgument("Idempotency-Key and the argument 'request' differ")
    return {**arguments, "request": key}


async def run_verbs(call: HttpCall) -> Response:
    """Call several verbs, and answer `{"results": […]}`, with `warnings` if they issued any. An `Idempotency-Key` is the request id of the run."""
    arguments = await arguments_of(call)
    key = call.request.headers.get("idempotency-key")
    if key is not None and arguments.setdefault("request", key) != key:
        raise InvalidArgument("Idempotency-Key and the member 'request' differ")
    front, issued = call.front, list[Warning]()
    results = await front.run_long(
        partial(run_steps, front.broker, call.principal, arguments, front.queries, warned=issued.append)
    )
    return _answer("results", results, issued)


def _answer(name: str, result: Any, issued: Sequence[Warning], status: int = 200) -> Response:
    answer = {name: to_json(result)}
    if issued:
        answer["warnings"] = [warning_to_json(warning) for warning in issued]
    return Response(to_bytes(answer), status, media_type="application/json")


async def _lines(call: HttpCall, items: Iterator[Any]) -> AsyncIterator[bytes]:
    """Items as JSON, one a line. An error ends them with a line of its own."""

    def step() -> list[bytes]:
        return [to_bytes(to_json(item)) + b"\n" for item in islice(items, _ITEMS_AT_A_TIME)]

    try:
        while found := await call.front.run_long(step):
            yield b"".join(found)
    except Exception as exc:
        yield to_bytes({"_problem": problem_of(exc)}) + b"\n"
