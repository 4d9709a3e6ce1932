"""`/write`: appends the points of the line protocol. The answer comes once all of them are durable.

A stream is created for a new measurement, and columns are added for new tags and fields, where the caller may do so. Points
that can't be taken are left out, and the answer says so; it does not undo the others. What another attempt may cure fails the
request, as clients drop the points of one that is answered with 400: those that were appended are then appended again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.responses import Response

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    Closed,
    Conflict,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RateLimited,
    StreamExists,
)
from anabranch.model.stream import StreamInfo
from anabranch.query.influxql.measurement import TEXT_FIELDS
from anabranch.query.influxql.times import UNITS
from anabranch.server.events.writers import SharedWriter
from anabranch.server.http.body import read_body
from anabranch.server.http.calls import run_verb
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.line_protocol import InfluxPoint, LineRefused, parse_lines
from anabranch.server.http.influx.points import NewColumns, PointTable
from anabranch.server.http.problem import HttpRefusal
from anabranch.wire.errors import status_of
from anabranch.wire.values import to_json

_FAILS_THE_REQUEST: Final = (Closed, Conflict, PermissionDenied, RateLimited)
_TIME: Final = "time"
_PRECISIONS: Final = ("", "n", "ns", "u", "µ", "ms", "s", "m", "h")


async def influx_write(call: HttpCall) -> Response:
    """Append events by InfluxDB's line protocol. The body has their points."""
    database, precision = call.text("db") or "", call.text("precision") or ""
    if not database:
        raise InvalidArgument("database is required")
    if precision not in _PRECISIONS:
        raise InvalidArgument(f'invalid precision "{precision:.20}" (use n, u, ms, s, m or h)')
    body = await read_body(call.request.receive, call.request.scope["headers"])
    call.front.guard.admit(call.principal, calls=0, bytes_=len(body))
    await call.front.run(lambda: _check_database(call, database))
    points, refused = await call.front.run(lambda: _parsed(body))
    unit = UNITS[precision or "ns"]
    problems = [str(each) for each in refused]
    dropped = 0
    for measurement, found in points.items():
        try:
            table = await _append(call, f"{database}/{measurement}", found, unit)
        except AnabranchError as exc:
            if isinstance(exc, _FAILS_THE_REQUEST) or status_of(exc).http >= 500:
                raise
            problems.append(f"{measurement}: {exc}")
            dropped += len(found)
        else:
            problems += table.problems[:1]
            dropped += table.dropped
    if problems:
        raise HttpRefusal(400, "partial_write", _problem(problems, dropped, whole=not points))
    return Response(status_code=204)


def _problem(problems: list[str], dropped: int, *, whole: bool) -> str:
    if whole:
        return "\n".join(problems[: limits.INFLUX_PROBLEMS_MAX])
    return f"partial write: {'; '.join(problems[: limits.INFLUX_PROBLEMS_MAX])} dropped={dropped}"


def _parsed(body: bytes) -> tuple[dict[str, list[InfluxPoint]], list[LineRefused]]:
    try:
        text = body.decode()
    except UnicodeDecodeError as exc:
        raise InvalidArgument(f"the body is not UTF-8: {exc.reason} at byte {exc.start}") from exc
    points: dict[str, list[InfluxPoint]] = {}
    refused = []
    for each in parse_lines(text):
        if isinstance(each, LineRefused):
            refused.append(each)
        else:
            points.setdefault(each.measurement, []).append(each)
    return points, refused


def _check_database(call: HttpCall, database: str) -> None:
    try:
        call.front.store.scopes.get(database)
    except NotFound:
        call.front.guard.authorize(call.principal, "write", f"{database}/", verb="write")
        raise HttpRefusal(404, "database_not_found", f'database not found: "{database}"') from None


async def _append(call: HttpCall, name: str, points: list[InfluxPoint], unit: int) -> PointTable:
    """Append the points of a measurement, those that fit its columns."""
    info = await _stream(call, name, points)
    table = await _table(call, info, points, unit)
    if table.new:
        await call.front.run_long(lambda: add_columns(call, info, table.new))
        call.front.names.forget(name)
        info = await call.front.names.get(name, call.principal, "write", verb="write")
        table = await _table(call, info, points, unit)
    batch = await call.front.run(table.batch)
    if not batch.num_rows:
        return table

    async def work(_: StreamInfo, writer: SharedWriter) -> None:
        accepted = await call.front.run(lambda: writer.accept(batch))
        if accepted.ack is not None:
            await call.front.writers.until_done(accepted.ack)
            accepted.ack.result(0)

    await call.front.append(info, call.principal, work)
    return table


async def _table(call: HttpCall, info: StreamInfo, points: list[InfluxPoint], unit: int) -> PointTable:
    """The points as rows. Made in a thread: of many points that takes seconds."""
    now = int(call.front.store.runtime.clock.now())
    return await call.front.run(lambda: PointTable(info, points, unit, now))


async def _stream(call: HttpCall, name: str, points: list[InfluxPoint]) -> StreamInfo:
    names = call.front.names
    try:
        return await names.get(name, call.principal, "write", verb="write")
    except NotFound:
        try:
            await call.front.run_long(lambda: create_stream(call, name, points))
        except StreamExists:  # another request has created it
            names.forget(name)
        return await names.get(name, call.principal, "write", verb="write")


def create_stream(call: HttpCall, name: str, points: Iterable[InfluxPoint]) -> None:
    """Create a stream with the columns of the points. Raises StreamExists."""
    columns = NewColumns.of(points)
    arguments: dict[str, Any] = {
        "name": name,
        "schema": to_json(columns.schema(time=_TIME)),
        "time": _TIME,
        "tags": columns.label({}),
        "exist_ok": False,
    }
    run_verb(call, "streams.create", arguments)


def add_columns(call: HttpCall, info: StreamInfo, new: NewColumns) -> None:
    """Add columns. Which of them are text fields is said first, so that they are never seen as tags."""
    label = new.label(info.tags)
    if label.get(TEXT_FIELDS) != info.tags.get(TEXT_FIELDS):
        run_verb(call, "streams.tag", {"name": str(info.name), "tags": label})
    run_verb(call, "streams.add_columns", {"name": str(info.name), "columns": to_json(new.schema())})
