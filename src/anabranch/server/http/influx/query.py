"""`/query`: statements of InfluxQL. An error of a statement stands in its place in the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from anabranch import limits
from anabranch.errors import AnabranchError, InvalidArgument, InvalidSql, PermissionDenied, RateLimited, Unauthenticated
from anabranch.query.influxql.parser import parse_query
from anabranch.query.influxql.select import select
from anabranch.query.influxql.series import too_many_rows
from anabranch.query.influxql.show import show
from anabranch.query.influxql.statements import Rows
from anabranch.query.influxql.syntax import (
    ContinuousQuery,
    DatabaseChange,
    DropContinuousQuery,
    Parsed,
    Select,
    Show,
    measurement_names,
)
from anabranch.server.http.body import FORM, form_fields, media_type, read_body
from anabranch.server.http.calls import run_verb
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.continuous import create_continuous, drop_continuous, show_continuous
from anabranch.server.http.influx.encode import encoded, epoch_of, pieces
from anabranch.server.http.influx.into import select_into
from anabranch.server.http.measurements import ReadableStreams

_CHUNK_ROWS: Final = 10_000
_REFUSING: Final = (PermissionDenied, RateLimited, Unauthenticated)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the answer: of the statement of this number, a series or an error or neither. `more`: another part of
    the statement follows."""

    number: int
    series: dict[str, Any] | None = None
    error: str | None = None
    more: bool = False

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"statement_id": self.number}
        if self.series is not None:
            found["series"] = [self.series]
        if self.error is not None:
            found["error"] = self.error
        if self.more:
            found["partial"] = True
        return found


@dataclass(frozen=True, slots=True)
class _Request:
    statements: list[Parsed]
    database: str
    epoch: int | None
    chunk: int | None
    pretty: bool


async def influx_query(call: HttpCall) -> Response:
    """Query by InfluxQL. The statements are the parameter `q`, of the URL or of a form, or a body that is one."""
    given = await _given(call)
    request = await call.front.run_query(lambda: _parsed(given))  # parsing a long text takes its time
    if call.request.method == "GET" and any(map(_changes, request.statements)):
        raise InvalidArgument("send a statement that changes something by POST")
    # Statements are answered in threads, and names are looked up in the loop.
    loop = asyncio.get_running_loop()
    answers = _answers(call, request, lambda name: loop.call_soon_threadsafe(call.front.names.forget, name))
    if request.chunk is None:
        whole = await call.front.run_query(lambda: _whole(answers, pretty=request.pretty))
        return Response(whole, media_type="application/json")
    first = await call.front.run_query(lambda: next(answers, None))
    return StreamingResponse(_stream(call, first, answers, request), media_type="application/json")


def _changes(statement: Parsed) -> bool:
    """Whether the statement changes something."""
    return not isinstance(statement, Select | Show) or (isinstance(statement, Select) and statement.into is not None)


async def _given(call: HttpCall) -> Mapping[str, str]:
    found = dict(call.request.query_params)
    if call.request.method == "POST":
        body = await read_body(call.request.receive, call.request.scope["headers"], bytes_max=4 * limits.SQL_BYTES_MAX)
        if media_type(call.request.headers) in ("", FORM):
            found = {**dict(form_fields(body)), **found}
        elif "q" not in found:
            found["q"] = _text(body)
    return found


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as exc:
        raise InvalidArgument("the query is not UTF-8") from exc


def _parsed(given: Mapping[str, str]) -> _Request:
    if not given.get("q"):
        raise InvalidArgument('missing required parameter "q"')
    try:
        statements = parse_query(given["q"], _parameters(given.get("params")))
    except InvalidSql as exc:
        raise InvalidArgument(f"error parsing query: {exc}") from exc
    chunk = None
    if given.get("chunked", "") == "true":
        size = given.get("chunk_size", "")
        chunk = min(int(size), _CHUNK_ROWS) if size.isascii() and size.isdigit() and len(size) < 10 else 0
    return _Request(
        statements,
        given.get("db", ""),
        epoch_of(given.get("epoch")),
        (chunk or _CHUNK_ROWS) if chunk is not None else None,
        given.get("pretty") == "true",
    )


def _parameters(text: str | None) -> Mapping[str, object]:
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        raise InvalidArgument(f"error parsing query parameters: {exc}") from exc
    if not isinstance(found, dict):
        raise InvalidArgument("error parsing query parameters: expected a JSON object")
    return {
        name: next(iter(value.values())) if isinstance(value, dict) and value else value
        for name, value in found.items()
    }


def _answers(call: HttpCall, request: _Request, forget: Callable[[str], object]) -> Iterator[_Piece]:
    """The parts of the answer, each made when it is taken."""
    streams = ReadableStreams(call.front.broker, call.front.queries.isolated, call.principal)
    now_ns = int(call.front.store.runtime.clock.now()) * 1_000
    rows = 0  # of all statements: they are held until the answer is whole
    for number, statement in enumerate(request.statements):
        zone = statement.zone if isinstance(statement, Select) else None
        held: dict[str, Any] | None = None
        try:
            for each in _series(call, statement, streams, request.database, now_ns, forget):
                for series, count in pieces(each, request.chunk, request.epoch, zone):
                    rows += count
                    if request.chunk is None and rows > limits.INFLUXQL_ROWS_MAX:
                        raise too_many_rows()
                    if held is not None:
                        yield _Piece(number, held, more=True)
                    held = series
        except _REFUSING:
            raise
        except AnabranchError as exc:
            yield _Piece(number, error=str(exc))
            continue
        yield _Piece(number, held)


def _series(
    call: HttpCall,
    statement: Parsed,
    streams: ReadableStreams,
    database: str,
    now: int,
    forget: Callable[[str], object],
) -> Iterator[Rows]:
    """Answer a statement at `now` (ns). Measurements without a database are of `database`. `forget` has a name looked up
    again."""
    match statement:
        case Show("CONTINUOUS QUERIES"):
            return show_continuous(call, streams)
        case Show():
            return show(statement, streams, database, now)
        case ContinuousQuery():
            create_continuous(call, statement, streams, database, now)
        case DropContinuousQuery():
            drop_continuous(call, statement)
        case DatabaseChange(verb, name):
            _change(call, verb, name, database)
        case Select(into=into):
            names = {each.database or database: None for each in measurement_names(statement)}
            if "" in names:
                raise InvalidSql("database name required")
            for name in names:
                streams.check_database(name)
            if into is not None:
                return select_into(call, statement, streams, database, now, forget)
            return select(statement, streams, database, now)
    return iter(())


def _change(call: HttpCall, verb: str, name: str, database: str) -> None:
    """Create or delete what the statement says, by the verb of the store that does so."""
    match verb:
        case "CREATE DATABASE":
            run_verb(call, "scopes.create", {"name": name, "exist_ok": True})
        case "DROP DATABASE":
            run_verb(call, "scopes.delete", {"name": name, "recursive": True})
        case "DROP MEASUREMENT":
            if not database:
                raise InvalidSql("database name required")
            run_verb(call, "streams.delete", {"name": f"{database}/{name}"})


def _whole(answers: Iterator[_Piece], *, pretty: bool) -> bytes:
    results: dict[int, dict[str, Any]] = {}
    for piece in answers:
        result = results.setdefault(piece.number, {"statement_id": piece.number})
        if piece.series is not None:
            result.setdefault("series", []).append(piece.series)
        if piece.error is not None:
            result["error"] = piece.error
    return encoded({"results": list(results.values())}, pretty=pretty)


async def _stream(
    call: HttpCall, first: _Piece | None, answers: Iterator[_Piece], request: _Request
) -> AsyncIterator[bytes]:
    following = first
    while following is not None:
        yield encoded({"results": [following.to_json()]}, pretty=request.pretty)
        try:
            following = await call.front.run_query(lambda: next(answers, None))
        except AnabranchError as exc:
            yield encoded({"error": str(exc)})
            return
