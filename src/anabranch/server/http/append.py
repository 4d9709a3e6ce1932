"""`POST /v1/streams/{scope}/{name}/events`: append events. The answer comes once they are durable."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from starlette.datastructures import Headers
from starlette.responses import Response

from anabranch import limits
from anabranch.core.ipc_bounds import open_bounded
from anabranch.errors import InvalidArgument, TooLarge
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamInfo
from anabranch.model.times import to_micros
from anabranch.server.events.producers import Numbered
from anabranch.server.events.row_decoder import RawRow, RowDecoder
from anabranch.server.events.writers import AcceptedBatch, SharedWriter, append_value
from anabranch.server.http.body import FORM, media_type, read_body
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.http.producers import numbered, producer_answer, ranges_json, sampled_json
from anabranch.writing.acknowledgement import Ack

JSON: Final = frozenset(("application/json",))
LINES: Final = frozenset(("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"))
ARROW: Final = frozenset(("application/vnd.apache.arrow.stream",))
_BATCHES: Final = JSON | LINES | ARROW
# No type, or the type that curl sends for -d: taken as JSON for a typed stream, as bytes for a raw one.
UNSAID: Final = frozenset(("", FORM))


async def append(call: HttpCall) -> Response:
    """Append events; answered once they are durable."""
    headers = call.request.headers
    body = await read_body(call.request.receive, call.request.scope["headers"])
    call.front.guard.admit(call.principal, calls=0, bytes_=len(body))
    kind = media_type(headers)
    if kind in UNSAID:
        kind = "application/octet-stream" if call.info.schema.raw else "application/json"

    async def work(info: StreamInfo, writer: SharedWriter) -> Response:
        if (number := numbered(headers)) is not None:
            return await call.front.run(lambda: _append_numbered(call, info, writer, number, kind, body))
        accepted = await _accept(call, writer, kind, body)
        await call.front.writers.until_done(accepted if isinstance(accepted, Ack) else accepted.ack)
        return Response(answer(accepted), media_type="application/json")

    return await call.front.append(call.info, call.principal, work)


async def _accept(call: HttpCall, writer: SharedWriter, kind: str, body: bytes) -> Ack | AcceptedBatch:
    """Hand the events to the writer."""
    front, decoder = call.front, writer.decoder
    if kind in JSON and body.lstrip()[:1] != b"[" and not writer.samples:
        return await front.run(lambda: append_value(writer, decoder.parse(body), len(body)))
    if kind not in _BATCHES and decoder.schema.raw:
        key, moment = raw_headers(call.request.headers, decoder)
        return await front.run(lambda: append_value(writer, RawRow(body, key, moment), len(body)))
    atomic = call.flag("atomic")
    return await front.run(lambda: writer.accept(_batch(call, decoder, kind, body), atomic=atomic))


def _append_numbered(
    call: HttpCall, info: StreamInfo, writer: SharedWriter, number: Numbered, kind: str, body: bytes
) -> Response:
    """Append all events of a request as one unit of its producer."""
    produced = call.front.producers.append(info, number, _batch(call, writer.decoder, kind, body))
    return Response(producer_answer(number, produced), media_type="application/json")


def _batch(call: HttpCall, decoder: RowDecoder, kind: str, body: bytes) -> pa.RecordBatch | pa.Table:
    """The events of a body, at least one. Raises InvalidArgument, SchemaMismatch, HttpRefusal."""
    batch: pa.RecordBatch | pa.Table
    if kind in ARROW:
        batch = read_arrow(body)
    elif kind in _BATCHES:
        value = decoder.parse(body, lines=kind in LINES)
        batch = decoder.batch(value if isinstance(value, list) else [value])
    elif decoder.schema.raw:
        key, moment = raw_headers(call.request.headers, decoder)
        batch = decoder.batch([RawRow(body, key, call.front.store.runtime.clock.now() if moment is None else moment)])
    else:
        raise HttpRefusal(
            415,
            "unsupported_media_type",
            f"'{call.info.name}' has columns: send application/json, application/x-ndjson or "
            f"application/vnd.apache.arrow.stream, not '{kind}'",
        )
    if not batch.num_rows:
        raise InvalidArgument("expected at least one event")
    return batch


def read_arrow(body: bytes) -> pa.Table:
    """An Arrow IPC stream from the network as a table: checked, and of bounded size. Raises InvalidArgument, TooLarge."""
    batches, size = [], 0
    try:
        incoming = open_bounded(pa.py_buffer(body))
        for batch in incoming:
            size += batch.nbytes
            if size > limits.HTTP_ARROW_BYTES_MAX:
                raise TooLarge("the decompressed body of a request", size, limits.HTTP_ARROW_BYTES_MAX)
            batches.append(batch)
        return pa.Table.from_batches(batches, schema=incoming.schema)
    except TooLarge:
        raise
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise InvalidArgument(f"the body is not an Arrow IPC stream: {exc}") from exc


def raw_headers(headers: Headers, decoder: RowDecoder) -> tuple[str | None, int | None]:
    """The key and the time of a raw event: `Anabranch-Key` (percent-encoded UTF-8) and `Anabranch-Time`. Raises
    InvalidArgument."""
    key, moment = headers.get("anabranch-key"), headers.get("anabranch-time")
    if key is not None and "%" in key:
        try:
            key = unquote(key, errors="strict")
        except UnicodeDecodeError as exc:
            raise InvalidArgument(f"expected Anabranch-Key as percent-encoded UTF-8, got '{key:.100}'") from exc
    if moment is not None and moment.isascii() and moment.removeprefix("-").isdigit() and len(moment) < 20:
        return key, int(to_micros(int(moment), decoder.rules))
    return key, None if moment is None else int(to_micros(moment, decoder.rules))


def answer(accepted: Ack | AcceptedBatch) -> bytes:
    """`{"events": N, "pointers": […], "ranges": […]}` of an append that is done, and `sampled` as in `sampled_json`.
    Raises the error that refused the append."""
    if isinstance(accepted, Ack):
        return single_answer(accepted.result(0))
    ack, count, sampled = accepted
    ranges = () if ack is None else ack.result(0)
    found: dict[str, Any] = {"events": count}
    if count <= limits.HTTP_POINTERS_MAX:
        found["pointers"] = [] if ack is None else [str(ack.pointer(row)) for row in range(count)]
    found["ranges"] = ranges_json(ranges)
    return msgspec.json.encode(found | sampled_json(sampled))


def single_answer(pointer: EventPointer) -> bytes:
    """`answer` for one event."""
    _, segment, offset = pointer
    return (
        f'{{"events":1,"pointers":["{pointer}"],'
        f'"ranges":[{{"segment":"{segment}","start":{offset},"stop":{offset + 1}}}]}}'
    ).encode()
