"""Deployed queries as resources: plain JSON for the verbs of `store.queries`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from anabranch import limits
from anabranch.catalog.state.query_question import CommittedState, UpgradePlan
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.core.pairs import parse_pairs
from anabranch.deployments.info import QueryInfo, progress_with_times
from anabranch.deployments.templates.template import QueryTemplate
from anabranch.errors import InvalidArgument
from anabranch.server.events.page import absolute, place
from anabranch.server.http.body import media_type, read_body, sql_text
from anabranch.server.http.calls import arguments_of, find_query, verb_result
from anabranch.server.http.front import HttpCall
from anabranch.server.http.resources import json_response, list_page, time_text
from anabranch.wire.hints import conform
from anabranch.wire.values import TYPE, parse_bytes

_ARGUMENTS: Final = {
    "sql": "text",
    "from": "start_from",
    "replace": "replace_results",
    "replay": "start_from",
    "keep": "keep_results",
}
"""The arguments of the verbs that are members of a body under another name."""
TEXT_MEMBERS: Final = ("dialect", "trigger", "standby", "group", "memory", "signature")
"""Members that are given as they are in the address, if the body is SQL."""
_OF_RUN: Final = ("from", "by", "replace")
_CODE: Final = ("files", "signature")
_TEXT: Final = ("sql", "dialect", "parameters")
_OF_VERSION: Final = (
    *("sql", "dialect", "template", "parameters", "trigger", "start", "standby", "group", "cpus", "memory"),
    *_CODE,
)


async def list_queries(call: HttpCall) -> Response:
    """The deployed queries. They are in name order."""
    return await list_page(call, "queries.list", (), query_json, lambda info: info.name)


async def get_query(call: HttpCall) -> Response:
    """One query."""
    return await _answer(call, "queries.get", {})


async def put_query(call: HttpCall) -> Response:
    """Deploy a query, or a new version of it. The body is its SQL, with the rest in the address, or a JSON object."""
    is_json = media_type(call.request.headers) == "application/json"
    body = await read_body(call.request.receive, call.request.scope["headers"])
    if is_json and call.request.query_params:
        names = ", ".join(f"'{name}'" for name in call.request.query_params)
        raise InvalidArgument(f"with a body in JSON, put {names:.200} into the body instead of the query string")
    members = _members(parse_bytes(body)) if is_json else _of_address(call, body)
    arguments = _arguments(call, members, (*_OF_VERSION, *_OF_RUN))
    if (template := arguments.pop("template", None)) is not None:
        if "text" in arguments or "dialect" in arguments:
            raise InvalidArgument("expected either 'sql', perhaps with its 'dialect', or 'template'")
        found: QueryTemplate = await verb_result(call, "templates.get", {"name": template})
        arguments["text"] = found.text
    arguments = await _with_text(call, arguments)
    is_new = await call.front.run(lambda: find_query(call)) is None
    info = await verb_result(call, "queries.deploy", {**named(call), **arguments})
    headers = {"Location": f"/v1/queries/{info.name}"} if is_new else None
    return json_response(query_json(info), 201 if is_new else 200, headers=headers)


async def delete_query(call: HttpCall) -> Response:
    """Delete a query. With `?drop=results` its results too; 202 where a host has to do that."""
    drop = call.text("drop")
    if drop not in (None, "results"):
        raise InvalidArgument(f"expected drop='results', got '{drop:.100}'")
    await verb_result(call, "queries.delete", {**named(call), "drop_results": drop is not None})
    left = await call.front.run(lambda: find_query(call))
    return Response(status_code=204) if left is None else json_response(query_json(left), 202)


async def start_query(call: HttpCall) -> Response:
    """Have a query run."""
    return await _changed(call, "queries.start", ())


async def stop_query(call: HttpCall) -> Response:
    """Have a query stop. It does so once its micro-batch is done, or now."""
    return await _changed(call, "queries.stop", ("now",))


async def rollback_query(call: HttpCall) -> Response:
    """Return to an older version."""
    return await _changed(call, "queries.rollback", ("version", *_OF_RUN))


async def upgrade_query(call: HttpCall) -> Response:
    """Upgrade to a new version; unchanged statements keep their state. With `replay`, all results are recomputed: 202, with
    the query that does so."""
    members = await arguments_of(call)
    if members.get("replay") is not None:
        arguments = _arguments(call, members, (*_TEXT, "trigger", "replay", "by", "keep", *_CODE))
        if "dialect" in arguments:
            arguments = await _with_text(call, arguments)
        return await _answer(call, "queries.replay", arguments, 202)
    arguments = _arguments(call, members, (*_TEXT, "trigger", *_OF_RUN, *_CODE))
    arguments = await _with_text(call, arguments)
    if "start_from" in arguments:
        arguments["restart_from"] = arguments.pop("start_from")
    return await _answer(call, "queries.upgrade", arguments)


async def plan_query_upgrade(call: HttpCall) -> Response:
    """What an upgrade would do."""
    arguments = _arguments(call, await arguments_of(call), (*_TEXT, "files"))
    arguments = await _with_text(call, arguments)
    found: UpgradePlan = await verb_result(call, "queries.plan", {**named(call), **arguments})
    return json_response({"version": found.version, "statements": [asdict(each) for each in found.statements]})


async def validate_query(call: HttpCall) -> Response:
    """Check a query. Nothing is deployed. The body is as for deploying one; what is not valid is answered as an error."""
    arguments = _arguments(call, await arguments_of(call), (*_TEXT, "files"))
    arguments = await _with_text(call, arguments)
    return json_response(asdict(await verb_result(call, "queries.validate", arguments)))


async def query_committed_state(call: HttpCall) -> Response:
    """Spark's state of a query, such as open windows."""
    arguments: dict[str, Any] = {name: call.text(name) for name in ("key", "result")}
    arguments["rows_max"] = call.count("limit", 100, most=limits.DEPLOYMENT_STATE_ROWS_MAX)
    if (batch := call.text("batch")) is not None:
        if not (batch.isascii() and batch.isdigit() and len(batch) < 19):
            raise InvalidArgument(f"expected batch as a whole number, got '{batch:.100}'")
        arguments["batch"] = int(batch)
    found: CommittedState = await verb_result(call, "queries.committed_state", {**named(call), **arguments})
    return json_response(asdict(found))


async def query_versions(call: HttpCall) -> Response:
    """The versions of a query. Those that are kept, oldest first."""
    return await list_page(
        call, "queries.versions", (), version_json, lambda each: each.number, given=named(call), parse_name=_number
    )


async def query_file(call: HttpCall) -> Response:
    """A file of a version. By default of the present one."""
    version = call.text("version")
    arguments = {"file": call.request.path_params["file"], **({} if version is None else {"version": _number(version)})}
    content: bytes = await verb_result(call, "queries.file", {**named(call), **arguments})
    return Response(content, media_type="application/octet-stream")


async def query_progress(call: HttpCall) -> Response:
    """The progress of a query. It is as of the last second of its run."""
    info: QueryInfo = await verb_result(call, "queries.get", named(call))
    return json_response({"state": info.state, "statements": [progress_json(each) for each in info.progress]})


def query_json(info: QueryInfo) -> dict[str, Any]:
    """A query as a resource."""
    times = {name: time_text(getattr(info, name)) for name in ("created_at", "changed_at", "retry_at")}
    found = asdict(info) | times | {"progress": [progress_json(each) for each in info.progress]}
    del found["epoch"]
    return found


def progress_json(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The progress of a statement, with times as text: `watermark` for `watermark_us`."""
    return progress_with_times(progress, time_text)


def version_json(version: QueryVersion) -> dict[str, Any]:
    """A version as a resource."""
    return {
        "number": version.number,
        "digest": version.digest,
        "created_at": time_text(version.created_at),
        "parameters": dict(version.parameters),
        "trigger_us": version.trigger_us,
        "sql": version.text,
        "files": [asdict(file) for file in version.files],
        "signature": version.signature,
    }


async def _changed(call: HttpCall, verb: str, members: tuple[str, ...]) -> Response:
    return await _answer(call, verb, _arguments(call, await arguments_of(call), members))


async def _answer(call: HttpCall, verb: str, arguments: Mapping[str, Any], status: int = 200) -> Response:
    return json_response(query_json(await verb_result(call, verb, {**named(call), **arguments})), status)


def _arguments(call: HttpCall, members: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The members of a body as arguments of a verb. Raises InvalidArgument."""
    for name in members:
        if name not in known:
            expected = ", ".join(f"'{each}'" for each in known) or "none"
            raise InvalidArgument(f"'{name:.100}' is not expected here; what may be given: {expected}")
    found = {_ARGUMENTS.get(name, name): value for name, value in members.items() if value is not None}
    if "start_from" in found:
        found["start_from"] = _places(call, found["start_from"])
    if "files" in found:
        found["files"] = _files(found["files"])
    return found


async def _with_text(call: HttpCall, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, their SQL translated if they name a dialect. Raises InvalidArgument, InvalidSql."""
    if "text" not in arguments:
        raise InvalidArgument("expected the query's SQL as 'sql'")
    found = dict(arguments)
    if (dialect := found.pop("dialect", None)) is not None:
        call.front.guard.authorize(call.principal, "admin", None, verb="queries.deploy")  # it takes its time
        sql = conform(found["text"], str, "'sql'")
        found["text"] = await call.front.run_query(
            partial(call.front.queries.translated, sql, conform(dialect, str, "'dialect'"), "pipeline")
        )
    return found


def _places(call: HttpCall, given: Any) -> Any:
    several = given if isinstance(given, list) else [given]
    if not several or not all(isinstance(each, str | int) and not isinstance(each, bool) for each in several):
        raise InvalidArgument("'from' is a place, or a list of one for each source: head, tail, a time, a cut")
    now = call.front.store.runtime.clock.now()
    found = [absolute(each, now) if isinstance(each, str) else each for each in several]
    if found != several and "idempotency-key" in call.request.headers:  # sent again, it would mean another time
        raise InvalidArgument("with an Idempotency-Key, give 'from' as the time itself, not by how long ago it is")
    return [place(each) if isinstance(each, str) else each for each in found]


def _files(given: Any) -> dict[str, Any]:
    """Files by name, from base64."""
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise InvalidArgument("expected 'files' as an object of file names and their contents in base64")
    return {name: {TYPE: "bytes", "base64": content} for name, content in given.items()}


def _of_address(call: HttpCall, body: bytes) -> dict[str, Any]:
    """What goes with a body that is SQL. Raises InvalidArgument."""
    query = call.request.query_params
    members: dict[str, Any] = {"sql": sql_text(body)}
    if parameters := query.getlist("param"):
        members["parameters"] = parse_pairs(parameters, "a parameter")
    if places := query.getlist("from"):
        members["from"] = places
    members |= {name: query[name] for name in ("by", *TEXT_MEMBERS) if name in query}
    if "cpus" in query:
        members["cpus"] = _decimal(query["cpus"])
    return members | {name: call.flag(name) for name in ("replace", "start") if name in query}


def _members(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument("expected the query as a JSON object, or its SQL with another Content-Type")
    return value


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"expected cpus as a number, got '{text:.100}'") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidArgument(f"expected the number of a version, got '{text:.100}'")
    return int(text)


def named(call: HttpCall) -> dict[str, Any]:
    """The name in the path, as an argument of a verb."""
    return {"name": call.request.path_params["name"]}
