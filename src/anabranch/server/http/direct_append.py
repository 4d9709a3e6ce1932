"""Single events by the shortest way: from the parser of HTTP to the writer, with neither a task nor the application in
between. Many that come at once share a commit and one wake-up. Every other request goes to its endpoint.

A `DirectAppend` takes the place of uvicorn's request cycle in a connection, until the request is answered or handed
over to a cycle."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from anabranch import limits
from anabranch.errors import Closed, SchemaMismatch
from anabranch.model.stream import StreamInfo
from anabranch.server.events.writers import SharedWriter, append_value
from anabranch.server.http.access import authenticate
from anabranch.server.http.append import UNSAID, single_answer
from anabranch.server.http.front import HttpFront
from anabranch.server.http.problem import problem_response
from anabranch.writing.acknowledgement import Ack

_EVENTS: Final = re.compile(rb"/v1/streams/([^/:?%]+/[^/:?%]+)/events")
_JSON: Final = b"application/json"
_ENDPOINT_HEADERS: Final = frozenset(
    (b"content-encoding", b"transfer-encoding", b"expect", b"idempotency-key", b"origin")
)
_ANSWER_HEADERS: Final = ((b"content-type", b"application/json"),)


class CallRecord(Protocol):
    """Counts and logs calls; see `HttpEdge`."""

    def direct_began(self) -> None:
        """A call has begun."""
        ...

    def direct_ended(self, scope: Scope, path: str, status: int, seconds: float, *, received: int, sent: int) -> None:
        """A call has ended with this status."""
        ...


class DirectAppends:
    """Decides which requests take the shortest way. For one event loop."""

    def __init__(self, front: Callable[[], HttpFront | None], record: CallRecord, *, connections_max: int) -> None:
        self._front = front
        self._record = record
        self._connections_max = connections_max

    def take(self, connection: HttpToolsProtocol) -> DirectAppend | None:
        """The DirectAppend that serves the request whose head is complete; None if the request goes to its endpoint. A
        request takes the shortest way if its body is small JSON, its stream was used a moment ago, and its connection
        has no other request and stays open."""
        match = _EVENTS.fullmatch(connection.url)
        front = self._front()
        if match is None or front is None or front.draining or not _is_free(connection, self._connections_max):
            return None
        name = match[1].decode("latin-1")
        info = front.names.known(name)
        writer = None if info is None else front.writers.known(info)
        if info is None or writer is None or not _is_single(connection.headers, raw=info.schema.raw):
            return None
        return DirectAppend(connection, front, self._record, info, writer)


def _is_free(connection: HttpToolsProtocol, connections_max: int) -> bool:
    parser, cycle = connection.parser, connection.cycle
    return bool(
        parser.get_method() == b"POST"
        and (cycle is None or cycle.response_complete)
        and not connection.flow.write_paused
        and len(connection.connections) < connections_max
        and parser.get_http_version() == "1.1"
        and parser.should_keep_alive()
        and not parser.should_upgrade()
    )


def _is_single(headers: list[tuple[bytes, bytes]], *, raw: bool) -> bool:
    """True if the headers say that the body is small, plain JSON, which may be one event."""
    kind, length = b"", 0
    for name, value in headers:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 10 else 0
        elif name in _ENDPOINT_HEADERS or name.startswith((b"producer-", b"anabranch-")):
            return False
    if not 0 < length <= limits.HTTP_SMALL_BYTES:
        return False
    return kind.partition(b";")[0] == _JSON or (not raw and kind.decode("latin-1") in UNSAID)


class DirectAppend:
    """One request. The attributes without an underscore are those of a uvicorn cycle that the connection uses."""

    def __init__(
        self,
        connection: HttpToolsProtocol,
        front: HttpFront,
        record: CallRecord,
        info: StreamInfo,
        writer: SharedWriter,
    ) -> None:
        self._connection = connection
        self._scope = cast(Scope, connection.scope)
        self._path = connection.url.decode("latin-1")
        self._front = front
        self._record = record
        self._info = info
        self._writer = writer
        self._started = False
        self._began = time.monotonic()
        self.body = bytearray()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True

    @property
    def message_event(self) -> DirectAppend:
        """Itself: the connection calls `set` when there is more of the body, when it is complete, and when the caller is
        gone."""
        return self

    def set(self) -> None:
        """Begin once the body is complete."""
        if self.more_body or self._started:
            return
        self._started = True
        full = self._writer.pending_bytes > limits.HTTP_PENDING_BYTES_MAX
        if full or self._writer.samples or self.body.lstrip()[:1] == b"[":
            self.hand_over()
            return
        front, info, body = self._front, self._info, bytes(self.body)
        try:
            principal = authenticate(front.guard, self._scope)
            front.guard.authorize(principal, "write", str(info.name), verb="append")
            front.guard.admit(principal, bytes_=len(body))
            ack = append_value(self._writer, self._writer.decoder.parse(body), len(body))
        except (Closed, SchemaMismatch):  # the stream may have new columns: the endpoint reads its schema again
            front.names.forget(str(info.name))
            self.hand_over()
        except Exception as exc:
            self._record.direct_began()
            self._refuse(exc)
        else:
            self._record.direct_began()
            self._writer.pending_bytes += len(body)
            front.writers.when_done(ack, partial(self._finish, ack))

    def hand_over(self) -> None:
        """Have the request served by its endpoint."""
        connection = self._connection
        self.response_complete = True  # so that the next cycle begins at once
        HttpToolsProtocol.on_headers_complete(connection)
        cycle = connection.cycle
        cycle.keep_alive = cycle.keep_alive and self.keep_alive
        cycle.body += self.body
        cycle.more_body = self.more_body
        cycle.message_event.set()

    def _finish(self, ack: Ack) -> None:
        """Answer, once the event is durable or refused."""
        if self.response_complete:
            return
        self._front.writers.release(self._writer, len(self.body))
        try:
            body = single_answer(ack.result(0))
        except Exception as exc:
            self._front.writers.forget(self._info, exc)
            self._refuse(exc)
        else:
            self._answer(200, _ANSWER_HEADERS, body)

    def _refuse(self, error: Exception) -> None:
        response = problem_response(error)
        headers = [each for each in response.raw_headers if each[0] != b"content-length"]
        self._answer(response.status_code, headers, bytes(response.body))

    def _answer(self, status: int, headers: Any, body: bytes) -> None:
        connection = self._connection
        self.response_complete = True
        if not self.disconnected and not connection.transport.is_closing():
            stays_open = self.keep_alive and not self._front.draining
            parts = [STATUS_LINE[status]]
            for name, value in (*connection.server_state.default_headers, *headers):
                parts += (name, b": ", value, b"\r\n")
            parts.append(
                b"content-length: %d\r\n%b\r\n%b" % (len(body), b"" if stays_open else b"connection: close\r\n", body)
            )
            connection.transport.write(b"".join(parts))
            if not stays_open:
                connection.transport.close()
        connection.on_response_complete()
        self._record.direct_ended(
            self._scope,
            self._path,
            status,
            time.monotonic() - self._began,
            received=len(self.body),
            sent=len(body),
        )
