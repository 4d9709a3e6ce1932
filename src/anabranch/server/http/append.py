"""`POST /v1/streams/{scope}/{name}/events`: append events. The answer comes once they are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from starlette.datastructures import Headers
from starlette.responses import Response

from anabranch import limits
from anabranch.core.ipc_bounds import open_bounded
from anabranch.errors import InvalidArgument, TooLarge
from anabranch.model.columns import RAW_COLUMNS
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamInfo
from anabranch.model.times import to_micros
from anabranch.server.events.producers import Numbered
from anabranch.server.events.row_decoder import RawRow, RowDecoder
from anabranch.server.events.writers import AcceptedBatch, SharedWriter, append_value
from anabranch.server.http.body import FORM, media_type, read_body
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.http.producers import numbered, producer_answer, sampled_json
from anabranch.writing.acknowledgement import Ack

JSON: Final = frozenset(("application/json",))
LINES: Final = frozenset(("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"))
ARROW: Final = frozenset(("application/vnd.apache.arrow.stream",))
# curl's default for -d, and no type at all: JSON for a typed stream, bytes for a raw one.
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
        accepted = await _accept(call, writer, kind, headers, body)
        await call.front.writers.until_done(accepted if isinstance(accepted, Ack) else accepted.ack)
        return Response(answer(accepted), media_type="application/json")

    return await call.front.append(call.info, call.principal, work)


async def _accept(
    call: HttpCall, writer: SharedWriter, kind: str, headers: Headers, body: bytes
) -> Ack | AcceptedBatch:
    """Hand the events to the writer."""
    if kind in JSON and body.lstrip()[:1] != b"[":
        if writer.samples:
            return await call.front.run(lambda: writer.accept(writer.decoder.batch([writer.decoder.parse(body)])))
        return await call.front.run(lambda: append_value(writer, writer.decoder.parse(body), len(body)))
    if kind in JSON or kind in LINES:
        return await call.front.run(
            lambda: _append_all(call, writer, _values(writer.decoder, body, lines=kind in LINES))
        )
    if kind in ARROW:
        return await call.front.run(lambda: _append_arrow(call, writer, body))
    if not call.info.schema.raw:
        raise _unsupported(call.info, kind)
    key, moment = raw_headers(headers, writer.decoder)
    return await call.front.run(lambda: append_value(writer, RawRow(body, key, moment), len(body)))


def _append_numbered(
    call: HttpCall, info: StreamInfo, writer: SharedWriter, number: Numbered, kind: str, body: bytes
) -> Response:
    """Append all events of a request as one unit of its producer."""
    decoder, headers = writer.decoder, call.request.headers
    batch: pa.RecordBatch | pa.Table
    if kind in ARROW:
        batch = read_arrow(body)
    elif kind in JSON or kind in LINES:
        found = decoder.parse(body, lines=kind in LINES)
        batch = decoder.batch(found if isinstance(found, list) else [found])
    elif decoder.schema.raw:
        key, moment = raw_headers(headers, decoder)
        moment = call.front.store.runtime.clock.now() if moment is None else moment
        batch = pa.RecordBatch.from_pylist([{"key": key, "time": moment, "payload": body}], schema=RAW_COLUMNS)
    else:
        raise _unsupported(info, kind)
    if not batch.num_rows:
        raise InvalidArgument("expected at least one event")
    return Response(
        producer_answer(number, call.front.producers.append(info, number, batch)), media_type="application/json"
    )


def _unsupported(info: StreamInfo, kind: str) -> HttpRefusal:
    return HttpRefusal(
        415,
        "unsupported_media_type",
        f"'{info.name}' has columns: send application/json, application/x-ndjson or "
        f"application/vnd.apache.arrow.stream, not '{kind}'",
    )


def _values(decoder: RowDecoder, body: bytes, *, lines: bool) -> list[Any]:
    values = decoder.parse(body, lines=lines)
    assert isinstance(values, list), "the body begins with a bracket, or is a list of lines"
    return values


def _append_all(call: HttpCall, writer: SharedWriter, values: Sequence[Any]) -> AcceptedBatch:
    if not values:
        raise InvalidArgument("expected at least one event")
    return writer.accept(writer.decoder.batch(values), atomic=call.flag("atomic"))


def _append_arrow(call: HttpCall, writer: SharedWriter, body: bytes) -> AcceptedBatch:
    table = read_arrow(body)
    if not table.num_rows:
        raise InvalidArgument("expected at least one event")
    return writer.accept(table, atomic=call.flag("atomic"))


def read_arrow(body: bytes) -> pa.Table:
    """An Arrow IPC stream from the network as a table: checked, and of bounded size. Raises InvalidArgument, TooLarge."""
    batches, size = [], 0
    try:
        found = open_bounded(pa.py_buffer(body))
        for batch in found:
            size += batch.nbytes
            if size > limits.HTTP_ARROW_BYTES_MAX:
                raise TooLarge("the decompressed body of a request", size, limits.HTTP_ARROW_BYTES_MAX)
            batches.append(batch)
        return pa.Table.from_batches(batches, schema=found.schema)
    except TooLarge:
        raise
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise InvalidArgument(f"the body is not an Arrow IPC stream: {exc}") from exc


def raw_headers(headers: Headers, decoder: RowDecoder) -> tuple[str | None, int | None]:
    """The key and the time of a raw event: `Anabranch-Key` (percent-encoded UTF-8) and `Anabranch-Time`."""
    key, moment = headers.get("anabranch-key"), headers.get("anabranch-time")
    if key is not None:
        key = unquote(key, errors="strict") if "%" in key else key
    if moment is not None and moment.isascii() and moment.removeprefix("-").isdigit() and len(moment) < 20:
        return key, int(to_micros(int(moment), decoder.rules))
    return key, None if moment is None else int(to_micros(moment, decoder.rules))


def answer(accepted: Ack | AcceptedBatch) -> bytes:
    """`{"events": N, "pointers": […], "ranges": […]}` of an append that is done, and `sampled` as in `sampled_json`.
    Raises what it was refused with."""
    if isinstance(accepted, Ack):
        return single_answer(accepted.result(0))
    ack, count, sampled = accepted
    ranges = () if ack is None else ack.result(0)
    pointers = None
    if count <= limits.HTTP_POINTERS_MAX:
        pointers = [] if ack is None else [str(ack.pointer(row)) for row in range(count)]
    found: dict[str, Any] = {"events": count}
    if pointers is not None:
        found["pointers"] = pointers
    found["ranges"] = [{"segment": str(each.segment), "start": each.start, "stop": each.stop} for each in ranges]
    return msgspec.json.encode(found | sampled_json(sampled))


def single_answer(pointer: EventPointer) -> bytes:
    """`answer` for one event."""
    _, segment, offset = pointer
    return (
        f'{{"events":1,"pointers":["{pointer}"],'
        f'"ranges":[{{"segment":"{segment}","start":{offset},"stop":{offset + 1}}}]}}'
    ).encode()
