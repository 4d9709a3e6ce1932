"""`GET /v1/streams/{scope}/{name}/events`: events between two places, as a page or as one long answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final
from urllib.parse import urlencode

import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.columns import RESERVED
from anabranch.model.cut import StreamCut
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import cut_behind
from anabranch.reading.reader import Reader
from anabranch.server.abandoned import closed_with, open_in_thread
from anabranch.server.events.arrow_encoder import shown_batch
from anabranch.server.events.page import EventPage, Range, absolute, open_range, rate_of, read_page, time_kind_of
from anabranch.server.events.row_encoder import encode_rows, rows_together
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.http.query_result import ENCODERS, ResultEncoder
from anabranch.server.rights import StreamRight
from anabranch.server.tail.paced import PacedPart, PacedParts

TYPES: Final = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "sse": "text/event-stream",
}
_ACCEPTED: Final = {
    **{kind: name for name, kind in TYPES.items()},
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/parquet": "parquet",
}


async def read(call: HttpCall) -> Response:
    """The events in the form that `format` or `Accept` asks for."""
    form = wanted_form(call, default="json")
    if form == "sse":
        raise HttpRefusal(406, "not_acceptable", "server-sent events require ?follow")
    asked = range_of(call)
    if asked.rate is not None and (form == "json" or asked.limit is not None):
        raise InvalidArgument("a page can't have a rate: omit limit, and request ndjson, arrow or parquet")
    if form == "json" and asked.limit is None:
        asked = asked._replace(limit=limits.HTTP_PAGE_EVENTS)
    if asked.limit is not None:
        return await _page(call, asked, form)
    reader = await open_in_thread(call.front.threads, lambda: open_range(call.front.store, call.info, asked))
    events = closed_with(_whole(call, reader, form, asked), reader.close)
    return StreamingResponse(events, media_type=TYPES[form], headers={"Anabranch-From": str(reader.position)})


def wanted_form(call: HttpCall, *, default: str) -> str:
    """The form of the answer. Raises InvalidArgument for an unknown `format`, HttpRefusal if no form
    in `Accept` is supported."""
    form = call.text("format")
    if form is not None:
        if form not in TYPES:
            raise InvalidArgument(f"expected format as one of {', '.join(TYPES)}; got '{form}'")
        return form
    accepted = call.request.headers.get("accept", "*/*")
    for part in accepted.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in ("*/*", "application/*", ""):
            return default
        if kind in _ACCEPTED:
            return _ACCEPTED[kind]
    raise HttpRefusal(406, "not_acceptable", f"events are given as {', '.join(sorted(_ACCEPTED))}")


def follows(call: HttpCall) -> bool:
    """Whether the caller follows the stream: with `?follow`, or by asking for server-sent events without it."""
    return call.flag("follow") or (call.text("follow") is None and wanted_form(call, default="json") == "sse")


def range_of(call: HttpCall) -> Range:
    """The range that the query of a call requests. Raises InvalidArgument."""
    columns = call.text("columns")
    between = call.text("between")
    low, dots, high = (between or "").partition("..")
    if between is not None and not (low and dots and high):
        raise InvalidArgument(f"expected between as FROM..TO, two times, TO exclusive; got '{between}'")
    end, now = call.text("to"), call.front.store.runtime.clock.now()
    return Range(
        start=absolute(call.text("from") or "head", now),
        end=None if end is None else absolute(end, now),
        by=time_kind(call),
        columns=None if columns is None else [name for name in columns.split(",") if name],
        between=None if between is None else (absolute(low, now), absolute(high, now)),
        limit=call.count("limit", None, most=limits.HTTP_PAGE_EVENTS_MAX),
        meta=call.flag("meta"),
        rate=rate_of(call.text("events_per_s"), call.text("bytes_per_s")),
    )


def time_kind(call: HttpCall) -> TimeKind:
    """The kind of the times in a query: `append` by default. Raises InvalidArgument."""
    return time_kind_of(call.text("by", "append"))


async def _page(call: HttpCall, asked: Range, form: str) -> Response:
    assert asked.limit is not None, "a page has a limit"
    limit = asked.limit

    def work() -> tuple[bytes, EventPage]:
        with open_range(call.front.store, call.info, asked) as reader:
            page = read_page(reader, limit)
            return _encoded_page(page, reader.schema, asked, form, _next_link(call, asked, page)), page

    body, page = await call.front.run(work)
    call.front.guard.admit(call.principal, calls=0, bytes_=len(body))
    headers = {"Anabranch-Next": str(page.after)}
    if (following := _next_link(call, asked, page)) is not None:
        headers["Link"] = f'<{following}>; rel="next"'
    return Response(body, media_type=TYPES[form], headers=headers)


def _next_link(call: HttpCall, asked: Range, page: EventPage) -> str | None:
    """The address of the page that follows, as a path; None if this one is the last. Relative times of
    the request, such as an age, are replaced by the times that they meant for this page."""
    if page.complete:
        return None
    bounds = {"from": str(page.after), "to": asked.end, "between": asked.between and "..".join(asked.between)}
    query = [(name, value) for name, value in call.request.query_params.multi_items() if name not in bounds]
    query += [(name, value) for name, value in bounds.items() if value is not None]
    return f"{call.request.scope['path']}?{urlencode(query)}"


def _encoded_page(page: EventPage, schema: pa.Schema, asked: Range, form: str, following: str | None) -> bytes:
    if form != "json":
        encoder = _encoder(form, schema, meta=asked.meta)
        rows = [_encoded(encoder, PacedPart(batch, after)) for batch, after in page.batches]
        return b"".join([encoder.head(), *rows, encoder.end()])
    rows = [row for batch, after in page.batches for row in encode_rows(batch, after=after if asked.meta else None)]
    link = "null" if following is None else f'"{following}"'
    return b'{"events":[' + b",".join(rows) + f'],"cut":"{page.after}","next":{link}}}'.encode()


async def _whole(call: HttpCall, reader: Reader, form: str, asked: Range) -> AsyncIterator[bytes]:
    """All events to the end, in parts; a part is encoded once the connection has taken the part before it."""
    front, guard, encoder = call.front, call.front.guard, _encoder(form, reader.schema, meta=asked.meta)
    parts = PacedParts(asked.rate, front.tails.closing)
    right = StreamRight(front.store, guard, call.principal, call.info.id, "read", verb="read")
    try:
        yield encoder.head()
        while (batch := await front.run(reader.read)) is not None:
            async for part in parts.of(batch, reader.position):
                await front.recheck(right)
                guard.authorize(call.principal, "read", str(call.info.name), verb="read")
                if part is None:
                    continue
                for piece in _pieces(part, form):
                    data = await front.run(partial(_encoded, encoder, piece))
                    guard.admit(call.principal, calls=0, bytes_=len(data))
                    for start in range(0, len(data), limits.FOLLOW_SEND_BYTES):
                        yield data[start : start + limits.FOLLOW_SEND_BYTES]
        yield encoder.end()
    finally:
        reader.close()


def _pieces(part: PacedPart, form: str) -> Iterator[PacedPart]:
    """The part as pieces whose rows are encoded together."""
    count = part.batch.num_rows
    rows = rows_together(part.batch) if form == "ndjson" else count
    for start in range(0, count, rows):
        batch = part.batch.slice(start, rows)
        yield PacedPart(batch, part.after if start + rows >= count else cut_behind(batch, part.after))


class _EventLines(ResultEncoder):
    """Each event as a JSON object on a line of its own."""

    def __init__(self, schema: pa.Schema, *, meta: bool) -> None:
        super().__init__(schema)
        self._meta = meta

    def batch(self, batch: pa.RecordBatch, after: StreamCut | None = None) -> bytes:
        return b"".join(row + b"\n" for row in encode_rows(batch, after=after if self._meta else None))


def _encoder(form: str, schema: pa.Schema, *, meta: bool) -> ResultEncoder:
    """The encoder of events in a form. Without `meta`, Arrow and Parquet omit the columns that the store adds."""
    if form == "ndjson":
        return _EventLines(schema, meta=meta)
    return ENCODERS[form](schema if meta else pa.schema([field for field in schema if field.name not in RESERVED]))


def _encoded(encoder: ResultEncoder, part: PacedPart) -> bytes:
    batch = part.batch if isinstance(encoder, _EventLines) else shown_batch(part.batch, encoder.schema)
    return encoder.batch(batch, part.after)
