"""The endpoints of deployed queries."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from anabranch import limits
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.openapi_parts import (
    BY,
    FLAG,
    KEY,
    OF_KEY,
    PAGE,
    PLACE,
    READ,
    READ_ANSWERS,
    TEXT,
    count_type,
    json_answer,
    json_content,
    query_parameter,
)
from anabranch.server.http.queries import resources, templates
from anabranch.server.http.queries.logs import logs
from anabranch.server.http.queries.results import results, results_socket, state

_QUERIES: Final = "/v1/queries"
_QUERY: Final = f"{_QUERIES}/{{name}}"
_TEMPLATES: Final = "/v1/templates"
_TEMPLATE: Final = f"{_TEMPLATES}/{{name}}"
_PAGE: Final = PAGE[:2]  # without filters
_SEVERAL: Final = {"type": "array", "items": TEXT}
_NEW: Final = (
    KEY,
    query_parameter("param", _SEVERAL, "With SQL as the body: `NAME=VALUE`, the value of a parameter."),
    query_parameter("dialect", TEXT, "With SQL as the body: the system whose SQL it is, such as `flink`."),
    query_parameter("trigger", TEXT, "With SQL as the body: the time between micro-batches, such as `1s`."),
    query_parameter(
        "from",
        _SEVERAL,
        f"With SQL as the body: start over here; one position for all sources, or one for each: {PLACE}",
    ),
    BY,
    query_parameter("replace", FLAG, "With SQL as the body: with `from`, drop the earlier results."),
    query_parameter("start", FLAG, "With SQL as the body: whether to start the query."),
    query_parameter(
        "standby", TEXT, "With SQL as the body: what takes over when a driver or host ends, `warm` or `hot`."
    ),
    query_parameter(
        "group", TEXT, "With SQL as the body: the group; queries of different groups never share a driver."
    ),
    query_parameter(
        "cpus", {"type": "number"}, "With SQL as the body: the processors that a host reserves for the query."
    ),
    query_parameter(
        "memory", TEXT, "With SQL as the body: the memory that a host reserves for the query, such as `500MB`."
    ),
    query_parameter("signature", TEXT, "With SQL as the body: the signature that `anabranch queries sign` writes."),
)
_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        **json_content("NewQuery")["content"],
        "application/sql": {"schema": TEXT},
        "text/plain": {"schema": TEXT},
    },
}
_CHANGED: Final = json_answer("Query", "The query.")

_endpoint = partial(Endpoint, operation=None, resource="verb")

QUERIES: Final[tuple[Endpoint, ...]] = (
    _endpoint(
        "GET",
        _QUERIES,
        resources.list_queries,
        name="list_queries",
        summary="The deployed queries",
        parameters=_PAGE,
        answers=json_answer("Queries", "A page of queries, in name order."),
    ),
    _endpoint(
        "PUT",
        _QUERY,
        resources.put_query,
        name="put_query",
        summary="Deploy a query, or a new version of it",
        parameters=_NEW,
        body=_BODY,
        answers={
            **json_answer("Query", "The query. If nothing changed, it gets no new version."),
            **json_answer("Query", "The new query.", "201"),
        },
    ),
    _endpoint(
        "GET",
        _QUERY,
        resources.get_query,
        name="get_query",
        summary="One query",
        answers=json_answer("Query", "The query."),
    ),
    _endpoint(
        "DELETE",
        _QUERY,
        resources.delete_query,
        name="delete_query",
        summary="Delete a query",
        parameters=(KEY, query_parameter("drop", {**TEXT, "enum": ["results"]}, "`results`: delete its results too.")),
        answers={"204": {"description": "It is deleted."}, **json_answer("Query", "A host deletes it.", "202")},
    ),
    _endpoint(
        "POST",
        f"{_QUERY}/start",
        resources.start_query,
        name="start_query",
        summary="Have a query run",
        parameters=(KEY,),
        answers=_CHANGED,
    ),
    _endpoint(
        "POST",
        f"{_QUERY}/stop",
        resources.stop_query,
        name="stop_query",
        summary="Have a query stop",
        parameters=(KEY,),
        body={**json_content("StopQuery"), "required": False},
        answers=_CHANGED,
    ),
    _endpoint(
        "POST",
        f"{_QUERY}/rollback",
        resources.rollback_query,
        name="rollback_query",
        summary="Return to an older version",
        parameters=(KEY,),
        body=json_content("Rollback"),
        answers=_CHANGED,
    ),
    _endpoint(
        "POST",
        f"{_QUERY}/upgrade",
        resources.upgrade_query,
        name="upgrade_query",
        summary="Upgrade to a new version; unchanged statements keep their state",
        parameters=(KEY,),
        body=json_content("QueryUpgrade"),
        answers={**_CHANGED, **json_answer("Query", "With `replay`: the query that recomputes the results.", "202")},
    ),
    _endpoint(
        "POST",
        f"{_QUERY}/plan",
        resources.plan_upgrade,
        name="plan_query_upgrade",
        summary="What an upgrade would do",
        body=json_content("QueryText"),
        answers=json_answer("UpgradePlan", "What the upgrade would do with each statement, and why. A host answers."),
    ),
    _endpoint(
        "POST",
        f"{_QUERIES}:validate",
        resources.validate_query,
        name="validate_query",
        summary="Check a query",
        body=json_content("QueryText"),
        answers=json_answer("ValidatedQuery", "The query can run. A host answers."),
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/versions",
        resources.list_versions,
        name="query_versions",
        summary="The versions of a query",
        parameters=_PAGE,
        answers=json_answer("QueryVersions", "A page of versions, oldest first."),
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/files/{{file}}",
        resources.get_file,
        name="query_file",
        summary="A file of a version",
        parameters=(query_parameter("version", {"type": "integer"}, "The version. Default: the current one."),),
        answers={
            "200": {"description": "Its content.", "content": {"application/octet-stream": {"schema": TEXT}}},
        },
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/progress",
        resources.get_progress,
        name="query_progress",
        summary="The progress of a query",
        answers=json_answer("QueryProgress", "Each statement, as of the last second of its run."),
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/logs",
        logs,
        name="query_logs",
        summary="The log of a query: its starts, ends and failures",
        parameters=READ,
        answers={"200": READ_ANSWERS["200"]},
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/results",
        results,
        name="query_results",
        summary="Read the results of a query, or follow them",
        parameters=READ,
        answers=READ_ANSWERS,
        socket=results_socket,
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/results/{{result:path}}",
        results,
        name="query_result",
        summary="One of several results",
        parameters=READ,
        answers=READ_ANSWERS,
        socket=results_socket,
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/state",
        state,
        name="query_state",
        summary="The last result with a routing key",
        parameters=(OF_KEY, query_parameter("result", TEXT, "With several results: the stream, or 1, 2 …")),
        answers=json_answer("Event", "The result; its pointer and its append time are in headers."),
    ),
    _endpoint(
        "GET",
        f"{_QUERY}/state/committed",
        resources.get_committed_state,
        name="query_committed_state",
        summary="Spark's state of a query, such as open windows",
        parameters=(
            query_parameter("key", TEXT, "Only rows whose key has a part with this text."),
            query_parameter("result", TEXT, "With several results: the stream, or 1, 2 …"),
            query_parameter(
                "batch",
                {"type": "integer", "minimum": 0},
                "The state after this micro-batch. Default: the last committed one.",
            ),
            query_parameter("limit", count_type(limits.DEPLOYMENT_STATE_ROWS_MAX, 100), "The maximum number of rows."),
        ),
        answers=json_answer("CommittedState", "Rows of the state, in no particular order. A host answers."),
    ),
    _endpoint(
        "GET",
        _TEMPLATES,
        templates.list_templates,
        name="list_templates",
        summary="The templates of queries",
        parameters=_PAGE,
        answers=json_answer("QueryTemplates", "A page of templates, in name order."),
    ),
    _endpoint(
        "GET",
        _TEMPLATE,
        templates.get_template,
        name="get_template",
        summary="One template",
        answers=json_answer("QueryTemplate", "The template."),
    ),
    _endpoint(
        "PUT",
        _TEMPLATE,
        templates.put_template,
        name="put_template",
        summary="Save a template, or change it",
        parameters=(KEY,),
        body={"required": True, "content": {"application/sql": {"schema": TEXT}, "text/plain": {"schema": TEXT}}},
        answers=json_answer("QueryTemplate", "The template."),
    ),
    _endpoint(
        "DELETE",
        _TEMPLATE,
        templates.remove_template,
        name="remove_template",
        summary="Remove a template that was saved",
        parameters=(KEY,),
        answers={"204": {"description": "It is removed."}},
    ),
)
