"""Continuous queries as deployed queries: a caller who may deploy and delete queries may create and drop continuous
queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.deployments.info import QueryInfo
from anabranch.errors import InvalidSql, QueryNotFound
from anabranch.query.influxql.continuous import deployed_name, first_window, pipeline_sql, text_of
from anabranch.query.influxql.statement_text import continuous_text
from anabranch.query.influxql.statements import Rows
from anabranch.query.influxql.syntax import ContinuousQuery, DropContinuousQuery
from anabranch.query.influxql.times import time_text
from anabranch.server.http.calls import find_query, run_verb
from anabranch.server.http.front import HttpCall
from anabranch.server.http.measurements import ReadableStreams


def create_continuous(
    call: HttpCall, query: ContinuousQuery, streams: ReadableStreams, database: str, now: int
) -> None:
    """Deploy the query. It begins with the window that `now` (ns) is in. As in InfluxDB, measurements without a database are of
    that of the request, if it has one. The same query again is left alone. Raises InvalidSql if
    another one has its name, or for what a pipeline can't do."""
    call.front.guard.authorize(call.principal, "admin", None, verb="queries.deploy")
    default, into = database or query.database, query.select.into
    for each in dict.fromkeys((query.database, (into and into.database) or default)):
        streams.check_database(each)
    name = deployed_name(query.name, query.database)
    found = find_query(call, name)
    if found is not None and found.wanted != "deleted":
        known = _continuous(call, found)
        if known is None:
            raise InvalidSql(f"the deployed query '{name}' is no continuous query: choose another name")
        if known[1] != continuous_text(query, default):
            raise InvalidSql("continuous query already exists")
        return
    begin = time_text(first_window(query, now))
    sql = pipeline_sql(query, streams, default)
    run_verb(call, "queries.deploy", {"name": name, "text": sql, "start_from": begin, "by": "event"})


def drop_continuous(call: HttpCall, dropped: DropContinuousQuery) -> None:
    """Delete the deployed query, and leave what it has written. Nothing to do without such a query."""
    call.front.guard.authorize(call.principal, "admin", None, verb="queries.delete")
    name = deployed_name(dropped.name, dropped.database)
    found = find_query(call, name)
    if found is not None and found.wanted != "deleted" and _continuous(call, found) is not None:
        run_verb(call, "queries.delete", {"name": name})


def show_continuous(call: HttpCall, streams: ReadableStreams) -> Iterator[Rows]:
    """The continuous queries of each database, in the order in which they were created."""
    found: list[QueryInfo] = run_verb(call, "queries.list", {})
    listed: dict[str, list[list[Any]]] = {name: [] for name in streams.databases()}
    for info in sorted(found, key=lambda each: each.created_at):
        known = None if info.wanted == "deleted" else _continuous(call, info)
        if known is not None and known[0].database in listed:
            listed[known[0].database].append([known[0].name, known[1]])
    for database, queries in listed.items():
        yield Rows(database, None, ["name", "query"], queries, timed=False)


def _continuous(call: HttpCall, info: QueryInfo) -> tuple[ContinuousQuery, str] | None:
    """The continuous query that a deployed query is, and its text; None if it is another one, or was deleted meanwhile."""
    try:
        versions = call.front.store.queries.versions(info.name)
    except QueryNotFound:
        return None
    return next((text_of(each.text) for each in versions if each.number == info.version), None)
