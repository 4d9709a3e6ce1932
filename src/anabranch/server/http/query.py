"""`POST /v1/query`: SQL over the streams that the caller may read, next to the data. Only the result is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.query.isolated import IsolatedResult
from anabranch.server.events.row_encoder import rows_together
from anabranch.server.http.body import media_type, read_body, sql_text
from anabranch.server.http.follow import run_while_connected
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal, problem_of, problem_response
from anabranch.server.http.query_result import ENCODERS, ResultEncoder
from anabranch.server.http.read import TYPES, wanted_form
from anabranch.server.queries import one_row
from anabranch.wire.hints import conform
from anabranch.wire.values import parse_bytes

_MEMBERS: Final = ("sql", "dialect", "parameters")


@dataclass(frozen=True, slots=True)
class _Asked:
    sql: str
    dialect: str | None
    parameters: list[Any]


async def query(call: HttpCall) -> Response:
    """Query streams in SQL, next to the data. The result is in the form that `format` or `Accept` asks for. The body is a
    JSON object, or SQL, with its `dialect` in the address."""
    form = wanted_form(call, default="json")
    if form not in ENCODERS:
        raise HttpRefusal(406, "not_acceptable", f"results are given as {', '.join(TYPES[each] for each in ENCODERS)}")
    return QueryResponse(call, await _asked(call), form)


async def _asked(call: HttpCall) -> _Asked:
    body = await read_body(call.request.receive, call.request.scope["headers"], bytes_max=4 * limits.SQL_BYTES_MAX)
    if media_type(call.request.headers) != "application/json":
        return _Asked(sql_text(body), call.text("dialect"), [])
    members = conform(parse_bytes(body), dict, "the body")
    if "dialect" in call.request.query_params:
        raise InvalidArgument("with a body in JSON, put 'dialect' into the body instead of the query string")
    if unknown := next((name for name in members if name not in _MEMBERS), None):
        raise InvalidArgument(f"'{unknown:.100}' is not expected here; what may be given: {', '.join(_MEMBERS)}")
    if "sql" not in members:
        raise InvalidArgument("expected the query as 'sql'")
    return _Asked(
        conform(members["sql"], str, "'sql'"),
        conform(members.get("dialect"), str | None, "'dialect'"),
        conform(members.get("parameters", []), list[Any], "'parameters'"),
    )


class QueryResponse(Response):
    """Runs the query, and sends its result while it is made. A caller who goes ends the query."""

    def __init__(self, call: HttpCall, asked: _Asked, form: str) -> None:
        super().__init__(None, 200, media_type=TYPES[form])
        del self.headers["content-length"]
        self._call = call
        self._front = call.front
        self._asked = asked
        self._encoder = ENCODERS[form]
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(self._serve(scope, receive, send), receive, "http.disconnect")
        finally:
            self._gone = True

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        encoder: ResultEncoder | None = None
        started = False
        last = b""
        try:
            with self._front.guard.hold(self._call.principal, "connections"):
                async with self._opened() as result:
                    encoder = self._encoder(result.schema)
                    async for part in self._parts(encoder, result):
                        if not started:
                            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                            started = True
                        await send({"type": "http.response.body", "body": part, "more_body": True})
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            if not started:
                await problem_response(exc)(scope, receive, send)
                return
            assert encoder is not None, "it has sent something"
            problem = encoder.problem(problem_of(exc))
            if problem is None:  # the connection breaks off: what was sent is not whole
                raise
            last = problem
        if not started:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": last, "more_body": False})

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[IsolatedResult]:
        """The result, closed in a thread: a process has to end, and what it spilled to be removed."""
        result = await self._front.open_query(self._open)
        try:
            yield result
        finally:
            try:
                await self._front.run(result.close)
            except RuntimeError:  # the front end has closed its threads
                result.close()

    async def _parts(self, encoder: ResultEncoder, result: IsolatedResult) -> AsyncIterator[bytes]:
        """The body in parts that are not empty; each waits until the connection has taken the one before."""
        async for data in self._encoded(encoder, iter(result)):
            self._front.guard.admit(self._call.principal, calls=0, bytes_=len(data))
            for start in range(0, len(data), limits.FOLLOW_SEND_BYTES):
                yield data[start : start + limits.FOLLOW_SEND_BYTES]

    async def _encoded(self, encoder: ResultEncoder, rows: Iterator[pa.RecordBatch]) -> AsyncIterator[bytes]:
        head = encoder.head()  # goes with the first rows: an error before them is answered with its own status
        while (batch := await self._next(rows)) is not None:
            together = rows_together(batch)
            for start in range(0, batch.num_rows, together):
                yield head + await self._front.run(partial(encoder.batch, batch.slice(start, together)))
                head = b""
        yield head + await self._front.run(encoder.end)

    async def _next(self, rows: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        pulling = asyncio.ensure_future(self._front.run_query(lambda: next(rows, None)))
        try:
            return await asyncio.shield(pulling)
        except asyncio.CancelledError:
            self._gone = True  # its thread notices that soon, and must be done before the result is closed
            await asyncio.wait((pulling,))
            raise

    def _open(self) -> IsolatedResult:
        asked, queries = self._asked, self._front.queries
        parameters = one_row(asked.parameters)
        sql = queries.translated(asked.sql, asked.dialect, over=self._is_over)
        return queries.run(self._call.principal, sql, parameters=parameters, over=self._is_over)

    def _is_over(self) -> bool:
        return self._gone
