"""The endpoints of deployed queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch import limits
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.openapi_parts import (
    BY,
    COUNT,
    INTEGER,
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
    list_of,
    one_of,
    query_parameter,
)
from anabranch.server.http.queries import resources, templates
from anabranch.server.http.queries.resources import TEXT_MEMBERS
from anabranch.server.http.queries.results import query_logs, query_results, query_state, results_socket
from anabranch.server.http.queries.schemas import NEW_QUERY

_QUERIES: Final = "/v1/queries"
_QUERY: Final = f"{_QUERIES}/{{name}}"
_TEMPLATES: Final = "/v1/templates"
_TEMPLATE: Final = f"{_TEMPLATES}/{{name}}"
_PAGE: Final = PAGE[:2]  # without filters
_SEVERAL: Final = list_of(TEXT)


def _beside_sql(member: str) -> Mapping[str, Any]:
    """The parameter of the query string that is this member of a body in JSON."""
    kind = NEW_QUERY["properties"][member]
    return query_parameter(member, kind, f"With SQL as the body. {kind['description']}")


_NEW: Final = (
    KEY,
    query_parameter("param", _SEVERAL, "With SQL as the body: `NAME=VALUE`, the value of a parameter."),
    query_parameter(
        "from",
        _SEVERAL,
        f"With SQL as the body: start over here; one position for all sources, or one for each: {PLACE}",
    ),
    BY,
    *map(_beside_sql, (*TEXT_MEMBERS, "replace", "start", "cpus")),
)
_SQL: Final = {"application/sql": {"schema": TEXT}, "text/plain": {"schema": TEXT}}
_QUERY_ANSWER: Final = json_answer("Query", "The query.")
_TEMPLATE_ANSWER: Final = json_answer("QueryTemplate", "The template.")
_RESULT: Final = query_parameter("result", TEXT, "With several results: the stream, or 1, 2 …")

QUERIES: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("GET", _QUERIES, resources.list_queries, json_answer("Queries", "A page of queries, in name order.")),
        parameters=_PAGE,
    ),
    Endpoint(
        *("PUT", _QUERY, resources.put_query),
        answers={
            **json_answer("Query", "The query. If nothing changed, it gets no new version."),
            **json_answer("Query", "The new query.", "201"),
        },
        parameters=_NEW,
        body={"required": True, "content": {**json_content("NewQuery")["content"], **_SQL}},
    ),
    Endpoint("GET", _QUERY, resources.get_query, _QUERY_ANSWER),
    Endpoint(
        *("DELETE", _QUERY, resources.delete_query),
        answers={"204": {"description": "It is deleted."}, **json_answer("Query", "A host deletes it.", "202")},
        parameters=(KEY, query_parameter("drop", one_of("results"), "`results`: delete its results too.")),
    ),
    Endpoint("POST", f"{_QUERY}/start", resources.start_query, _QUERY_ANSWER, parameters=(KEY,)),
    Endpoint(
        *("POST", f"{_QUERY}/stop", resources.stop_query, _QUERY_ANSWER),
        parameters=(KEY,),
        body={**json_content("StopQuery"), "required": False},
    ),
    Endpoint(
        *("POST", f"{_QUERY}/rollback", resources.rollback_query, _QUERY_ANSWER),
        parameters=(KEY,),
        body=json_content("Rollback"),
    ),
    Endpoint(
        *("POST", f"{_QUERY}/upgrade", resources.upgrade_query),
        answers={
            **_QUERY_ANSWER,
            **json_answer("Query", "With `replay`: the query that recomputes the results.", "202"),
        },
        parameters=(KEY,),
        body=json_content("QueryUpgrade"),
    ),
    Endpoint(
        *("POST", f"{_QUERY}/plan", resources.plan_query_upgrade),
        answers=json_answer("UpgradePlan", "What the upgrade would do with each statement, and why. A host answers."),
        body=json_content("QueryText"),
    ),
    Endpoint(
        *("POST", f"{_QUERIES}:validate", resources.validate_query),
        answers=json_answer("ValidatedQuery", "The query can run. A host answers."),
        body=json_content("QueryText"),
    ),
    Endpoint(
        *("GET", f"{_QUERY}/versions", resources.query_versions),
        answers=json_answer("QueryVersions", "A page of versions, oldest first."),
        parameters=_PAGE,
    ),
    Endpoint(
        *("GET", f"{_QUERY}/files/{{file}}", resources.query_file),
        answers={"200": {"description": "Its content.", "content": {"application/octet-stream": {"schema": TEXT}}}},
        parameters=(query_parameter("version", INTEGER, "The version. Default: the current one."),),
    ),
    Endpoint(
        *("GET", f"{_QUERY}/progress", resources.query_progress),
        answers=json_answer("QueryProgress", "Each statement, as of the last second of its run."),
    ),
    Endpoint("GET", f"{_QUERY}/logs", query_logs, {"200": READ_ANSWERS["200"]}, parameters=READ),
    Endpoint("GET", f"{_QUERY}/results", query_results, READ_ANSWERS, parameters=READ, socket=results_socket),
    Endpoint(
        *("GET", f"{_QUERY}/results/{{result:path}}", query_results, READ_ANSWERS),
        name="query_result",
        summary="Read one of several results, or follow it",
        parameters=READ,
        socket=results_socket,
    ),
    Endpoint(
        *("GET", f"{_QUERY}/state", query_state),
        answers=json_answer("Event", "The result; its pointer and its append time are in headers."),
        parameters=(OF_KEY, _RESULT),
    ),
    Endpoint(
        *("GET", f"{_QUERY}/state/committed", resources.query_committed_state),
        answers=json_answer("CommittedState", "Rows of the state, in no particular order. A host answers."),
        parameters=(
            query_parameter("key", TEXT, "Only rows whose key has a part with this text."),
            _RESULT,
            query_parameter("batch", COUNT, "The state after this micro-batch. Default: the last committed one."),
            query_parameter("limit", count_type(limits.DEPLOYMENT_STATE_ROWS_MAX, 100), "The maximum number of rows."),
        ),
    ),
    Endpoint(
        *("GET", _TEMPLATES, templates.list_templates),
        answers=json_answer("QueryTemplates", "A page of templates, in name order."),
        parameters=_PAGE,
    ),
    Endpoint("GET", _TEMPLATE, templates.get_template, _TEMPLATE_ANSWER),
    Endpoint(
        *("PUT", _TEMPLATE, templates.put_template, _TEMPLATE_ANSWER),
        parameters=(KEY,),
        body={"required": True, "content": _SQL},
    ),
    Endpoint(
        *("DELETE", _TEMPLATE, templates.remove_template, {"204": {"description": "It is removed."}}),
        parameters=(KEY,),
    ),
)
