"""Converts events from and to messages: a request's events into a writer's batch, and a reader's batch into parts of an
answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.core.routing import check_key
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import select_columns
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema
from anabranch.model.times import to_micros
from anabranch.server.events.row_decoder import RawRow, RowDecoder
from anabranch.server.events.row_encoder import cuts_of, encode_rows, pointers_of
from anabranch.wire.v1 import store_pb2 as v1


def value_of(event: v1.Event, decoder: RowDecoder, now: Micros) -> Any:
    """An event of a request as `append_value` and `RowDecoder.batch` take it. `now` is the time of a payload without
    one. Raises SchemaMismatch, InvalidKey, InvalidArgument."""
    body = event.WhichOneof("body")
    if body is None:
        raise SchemaMismatch("expected either json or payload in an event")
    if body == "json":
        if event.HasField("key") or event.HasField("time_us"):
            raise SchemaMismatch("key and time_us are for events with payload; with json, they are columns")
        return decoder.parse(event.json)
    if not decoder.schema.raw:
        raise SchemaMismatch("the stream has columns: send json, not payload")
    key = event.key if event.HasField("key") else None
    if key is not None:
        check_key(key)
    moment = int(to_micros(event.time_us, decoder.rules)) if event.HasField("time_us") else now
    return RawRow(event.payload, key, moment)


def columns_of(schema: StreamSchema, asked: Sequence[str]) -> list[str] | None:
    """The columns that a caller asks for; None for all. Raises InvalidArgument."""
    if not asked:
        return None
    if schema.raw:
        raise SchemaMismatch("a raw stream has no columns to choose from")
    return list(select_columns(list(asked), schema.columns))


def encode(
    batch: pa.RecordBatch, after: StreamCut, *, raw: bool, columns: Sequence[str] | None, meta: bool
) -> list[bytes]:
    """The rows as serialized `ReadResponse`, which are `FollowResponse` too: parts of about `limits.FOLLOW_SEND_BYTES`,
    each with the cut after its last row. `after` is the cut after the batch."""
    events = events_of(batch, raw=raw, columns=columns)
    cuts = cuts_of(batch, after)
    if meta:
        _add_meta(events, batch, after, cuts)
    parts, first, size = [], 0, 0
    for number, event in enumerate(events):
        size += event.ByteSize()
        if size >= limits.FOLLOW_SEND_BYTES or number == len(events) - 1:
            part = v1.ReadResponse(events=events[first : number + 1], cut=cuts[number])
            parts.append(part.SerializeToString())
            first, size = number + 1, 0
    return parts


def events_of(batch: pa.RecordBatch, *, raw: bool, columns: Sequence[str] | None = None) -> list[v1.Event]:
    """The rows as messages."""
    return _payloads(batch) if raw else [v1.Event(json=row) for row in encode_rows(batch, columns=columns)]


def batch_of(events: Sequence[v1.Event], decoder: RowDecoder, now: Micros) -> pa.RecordBatch:
    """Events of a request as one batch. `now` is the time of a payload without one. Raises InvalidArgument,
    SchemaMismatch and InvalidKey."""
    if not events:
        raise InvalidArgument("expected at least one event")
    return decoder.batch([value_of(each, decoder, now) for each in events])


def _payloads(batch: pa.RecordBatch) -> list[v1.Event]:
    keys, payloads = (batch.column(name).to_pylist() for name in ("key", "payload"))
    times = batch.column("time").cast(pa.int64()).to_pylist()
    return [
        v1.Event(payload=payload or b"", key=key, time_us=moment)
        for key, moment, payload in zip(keys, times, payloads, strict=True)
    ]


def _add_meta(events: Sequence[v1.Event], batch: pa.RecordBatch, after: StreamCut, cuts: Sequence[str]) -> None:
    appended = batch.column("_appended").cast(pa.int64()).to_pylist()
    for event, pointer, moment, cut in zip(events, pointers_of(batch, after), appended, cuts, strict=True):
        event.pointer, event.appended_us, event.cut = pointer, moment, cut
