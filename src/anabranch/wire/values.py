"""Values of the store's API as JSON, and back.

`null`, `true`, integers, text, lists and objects are themselves. Everything else is an object with `$type`: a class of
`anabranch.wire.registry` by its fields (`{"$type": "Distance", "events": 3, "bytes": 90}`) or its text (`{"$type":
"StreamCut", "text": "…"}`), bytes as base64, times as ISO 8601, an Arrow schema as its IPC message in base64.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from anabranch import limits
from anabranch.core.ipc_bounds import open_bounded
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.model.event import Event, EventRun
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.schema import StreamSchema
from anabranch.wire.frames import pack_table
from anabranch.wire.hints import conform, hints_of
from anabranch.wire.registry import ENUMS, NAMED, TEXTS

TYPE: Final = "$type"
_DECIMAL_CHARS_MAX: Final = 100  # the widest decimal column holds 76 digits
_INT_MAX: Final = 1 << 128  # the bound for both signs; no key or integer of a decimal column reaches it

Json = Any


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """An object that stays in the broker, such as a running job: its class and its id. The client wraps it."""

    kind: str
    id: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ThisStore:
    """An argument that stands for the store on which the method is called."""


def to_json(value: Any) -> Json:
    """The value as JSON. Raises InvalidArgument for a value that can't be sent."""
    return _encode(value, inside=False)


def from_json(value: Json) -> Any:
    """The inverse of `to_json`. Raises InvalidArgument for anything that `to_json` does not make, and for a value nested
    deeper than `limits.WIRE_JSON_DEPTH_MAX`."""
    return _decode(value, 0)


def to_bytes(value: Json) -> bytes:
    """JSON as UTF-8, compact. A character that UTF-8 can't encode, as in some file names, becomes a
    question mark."""
    return _compact(value).encode("utf-8", "replace")


def arguments_to_bytes(value: Json) -> bytes:
    """JSON as UTF-8, compact. Raises InvalidArgument for text that is not Unicode."""
    try:
        return _compact(value).encode()
    except UnicodeEncodeError as exc:
        raise InvalidArgument(f"can't encode an argument as UTF-8: {exc.reason}") from exc


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def parse_bytes(data: bytes | memoryview, bytes_max: int = limits.WIRE_JSON_BYTES_MAX) -> Json:
    """JSON from an untrusted client. Raises InvalidArgument for malformed JSON, a duplicate member, numbers that are
    not JSON's, and more than `bytes_max` bytes."""
    if len(data) > bytes_max:
        raise InvalidArgument(f"the JSON has {len(data):,} bytes, over the limit of {bytes_max:,}")
    try:
        return json.loads(bytes(data), parse_constant=_no_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as exc:  # also UnicodeDecodeError, and an integer of too many digits
        raise InvalidArgument(f"expected JSON: {str(exc)[:200] or 'it is nested too deeply'}") from exc


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has the same member twice")
    return members


# encoding


def _encode(value: Any, *, inside: bool) -> Json:
    if value is None or (isinstance(value, bool | str) and not isinstance(value, Enum)):
        return value
    kind = type(value)
    if kind in NAMED.values():
        return _encode_named(value)
    if isinstance(value, int) and not isinstance(value, Enum):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {TYPE: "float", "text": repr(float(value))}
    if isinstance(value, Mapping):
        return _encode_mapping(value, inside)
    if kind is list or (kind is tuple and inside):
        return [_encode(each, inside=inside) for each in value]
    if kind in (tuple, set, frozenset):
        items = sorted(value, key=str) if kind is not tuple else value
        encoded = [_encode(each, inside=inside) for each in items]
        return encoded if inside else {TYPE: kind.__name__, "items": encoded}
    for base, encode in _ENCODERS.items():
        if isinstance(value, base):
            return encode(value)
    raise InvalidArgument(f"a {kind.__name__} can't be sent to or from a broker")


def _encode_named(value: Any) -> Json:
    kind = type(value)
    if kind in TEXTS:
        return {TYPE: kind.__name__, "text": str(value)}
    if isinstance(value, Enum):
        return {TYPE: kind.__name__, "value": value.value}
    return {TYPE: kind.__name__} | {name: _encode(getattr(value, name), inside=True) for name in _fields(kind)}


def _encode_mapping(value: Mapping[Any, Any], inside: bool) -> Json:
    if all(type(each) is str for each in value) and TYPE not in value:
        return {name: _encode(each, inside=inside) for name, each in value.items()}
    items = [[_encode(key, inside=False), _encode(each, inside=inside)] for key, each in value.items()]
    return {TYPE: "map", "items": items}


def _fields(kind: type) -> Sequence[str]:
    named: Sequence[str] | None = getattr(kind, "_fields", None)
    if named is not None:
        return named
    return [each.name for each in dataclasses.fields(kind) if each.init]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _encode_event(event: Event) -> Json:
    run = event.alone()
    return {
        TYPE: "Event",
        "stream": run.stream,
        "segment": str(run.segment),
        "offset": run.first,
        "appended_us": run.appended,
        "schema": _encode_schema(run.schema),
        "body": None if run.body is None else list(run.body),
        "row": _base64(pack_table(run.batch).to_pybytes()),
    }


def _encode_schema(schema: StreamSchema) -> Json:
    columns = _base64(schema.to_bytes())
    return {TYPE: "StreamSchema", "columns": columns, "key": schema.key, "time": schema.time, "raw": schema.raw}


_ENCODERS: Final[Mapping[type, Callable[[Any], Json]]] = {
    bytes: lambda value: {TYPE: "bytes", "base64": _base64(value)},
    datetime: lambda value: {TYPE: "datetime", "text": value.isoformat()},
    date: lambda value: {TYPE: "date", "text": value.isoformat()},
    time: lambda value: {TYPE: "time", "text": value.isoformat()},
    timedelta: lambda value: {TYPE: "timedelta", "us": value // timedelta(microseconds=1)},
    Decimal: lambda value: {TYPE: "decimal", "text": str(value)},
    UUID: lambda value: {TYPE: "uuid", "text": str(value)},
    Handle: lambda value: {TYPE: "Handle", "kind": value.kind, "id": value.id, "fields": to_json(value.fields)},
    ThisStore: lambda value: {TYPE: "ThisStore"},
    StreamSchema: _encode_schema,
    pa.Schema: lambda value: {TYPE: "ArrowSchema", "ipc": _base64(value.serialize().to_pybytes())},
    Event: _encode_event,
}


# decoding


def _decode(value: Json, depth: int) -> Any:
    if depth > limits.WIRE_JSON_DEPTH_MAX:
        raise InvalidArgument(f"the value is nested deeper than {limits.WIRE_JSON_DEPTH_MAX} levels")
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        if not -_INT_MAX < value < _INT_MAX:
            raise InvalidArgument("an integer has more than 128 bits")
        return value
    if isinstance(value, list):
        return [_decode(each, depth + 1) for each in value]
    if not isinstance(value, dict):
        raise InvalidArgument(f"expected JSON, found {type(value).__name__}")
    if TYPE not in value:
        return {name: _decode(each, depth + 1) for name, each in value.items()}
    fields = {name: each for name, each in value.items() if name != TYPE}
    return _decode_typed(value[TYPE], fields, depth)


def _decode_typed(name: Any, fields: dict[str, Json], depth: int) -> Any:
    if not isinstance(name, str):
        raise InvalidArgument(f"expected {TYPE} as text")
    kind = NAMED.get(name)
    if kind is not None and kind in TEXTS:
        return TEXTS[kind](_only(name, fields, "text"))
    if kind in ENUMS:
        return _decode_enum(kind, _only(name, fields, "value"))
    if kind is not None:
        return _decode_record(kind, {each: _decode(value, depth + 1) for each, value in fields.items()})
    decoder = _DECODERS.get(name)
    if decoder is None:
        raise InvalidArgument(f"'{name:.100}' is not the {TYPE} of a value")
    try:
        return decoder(fields, depth)
    except AnabranchError:
        raise
    except (KeyError, ValueError, TypeError, OverflowError, InvalidOperation, OSError, pa.ArrowException) as exc:
        raise InvalidArgument(f"a value of {TYPE} '{name}' is malformed: {type(exc).__name__}") from exc


def _only(name: str, fields: dict[str, Json], member: str) -> str:
    text = fields.get(member)
    if not isinstance(text, str) or len(fields) != 1:
        raise InvalidArgument(f"a value of {TYPE} '{name}' is expected with one member, '{member}', as text")
    return text


def _decode_enum(kind: Any, value: str) -> Any:
    try:
        return kind(value)
    except ValueError as exc:
        known = ", ".join(str(each.value) for each in kind)
        raise InvalidArgument(f"'{value:.100}' is not a {kind.__name__}: expected {known}") from exc


def _decode_record(kind: Any, fields: dict[str, Any]) -> Any:
    names = _fields(kind)
    if unknown := next((each for each in fields if each not in names), None):
        raise InvalidArgument(f"a {kind.__name__} has no member '{unknown:.100}'")
    hints = hints_of(kind)
    values = {name: conform(each, hints.get(name, Any), f"{kind.__name__}.{name}") for name, each in fields.items()}
    try:
        return kind(**values)
    except AnabranchError:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as exc:
        raise InvalidArgument(f"a {kind.__name__} can't be created from its members: {exc}") from exc


def _unbase64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise InvalidArgument("expected bytes as base64 text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise InvalidArgument(f"expected bytes as base64: {exc}") from exc


def _items(fields: dict[str, Json], depth: int) -> list[Any]:
    items = fields["items"]
    if not isinstance(items, list):
        raise InvalidArgument("expected 'items' as a list")
    return [_decode(each, depth + 1) for each in items]


def _text(fields: dict[str, Json]) -> str:
    text = fields["text"]
    if not isinstance(text, str):
        raise InvalidArgument("expected 'text' as text")
    return text


def _decode_float(fields: dict[str, Json], depth: int) -> float:
    text = _text(fields)
    if text not in ("inf", "-inf", "nan"):
        raise InvalidArgument("a typed float is inf, -inf or nan")
    return float(text)


def _decode_decimal(fields: dict[str, Json], depth: int) -> Decimal:
    text = _text(fields)
    if len(text) > _DECIMAL_CHARS_MAX:
        raise InvalidArgument(f"a decimal has {len(text):,} characters, over the limit of {_DECIMAL_CHARS_MAX}")
    return Decimal(text)


def _decode_map(fields: dict[str, Json], depth: int) -> dict[Any, Any]:
    return {key: value for key, value in _items(fields, depth)}  # noqa: C416 - also refuses items that are not pairs


def _decode_handle(fields: dict[str, Json], depth: int) -> Handle:
    members = _decode(fields.get("fields", {}), depth + 1)
    return Handle(
        conform(fields["kind"], str, "kind"), conform(fields["id"], str, "id"), conform(members, dict, "fields")
    )


def _decode_schema(fields: dict[str, Json], depth: int) -> StreamSchema:
    columns = _arrow_schema(fields["columns"])
    key, time_ = (conform(fields[name], str | None, name) for name in ("key", "time"))
    raw = conform(fields["raw"], bool, "raw")
    for name in (key, time_):
        if name is not None and columns.get_field_index(name) < 0:
            raise InvalidArgument(f"the schema has no column '{name:.100}'")
    return StreamSchema(lambda: columns, key, time_, raw)


def _arrow_schema(text: Any) -> pa.Schema:
    schema = pa.ipc.read_schema(pa.py_buffer(_unbase64(text)))
    if len(schema) > limits.COLUMNS_MAX:
        raise InvalidArgument(f"the schema has {len(schema):,} columns, over the limit of {limits.COLUMNS_MAX:,}")
    return schema


def _decode_event(fields: dict[str, Json], depth: int) -> Event:
    schema = _decode(fields["schema"], depth + 1)
    if not isinstance(schema, StreamSchema):
        raise InvalidArgument("expected 'schema' as a StreamSchema")
    batches = list(open_bounded(pa.py_buffer(_unbase64(fields["row"]))))
    if len(batches) != 1 or batches[0].num_rows != 1:
        raise InvalidArgument("expected an event as one row")
    (batch,) = batches
    batch.validate(full=True)
    return Event(
        EventRun(
            StreamId(conform(fields["stream"], int, "stream")),
            schema,
            SegmentId(*TEXTS[SegmentId](conform(fields["segment"], str, "segment"))),
            batch,
            conform(fields["offset"], int, "offset"),
            appended=conform(fields["appended_us"], int | None, "appended_us"),
            body=conform(fields["body"], list[str] | None, "body"),
        ),
        0,
    )


_DECODERS: Final[Mapping[str, Callable[[dict[str, Json], int], Any]]] = {
    "tuple": lambda fields, depth: tuple(_items(fields, depth)),
    "set": lambda fields, depth: set(_items(fields, depth)),
    "frozenset": lambda fields, depth: frozenset(_items(fields, depth)),
    "map": _decode_map,
    "float": _decode_float,
    "bytes": lambda fields, depth: _unbase64(fields["base64"]),
    "datetime": lambda fields, depth: datetime.fromisoformat(_text(fields)),
    "date": lambda fields, depth: date.fromisoformat(_text(fields)),
    "time": lambda fields, depth: time.fromisoformat(_text(fields)),
    "timedelta": lambda fields, depth: timedelta(microseconds=conform(fields["us"], int, "us")),
    "decimal": _decode_decimal,
    "uuid": lambda fields, depth: UUID(_text(fields)),
    "Handle": _decode_handle,
    "ThisStore": lambda fields, depth: ThisStore(),
    "StreamSchema": _decode_schema,
    "ArrowSchema": lambda fields, depth: _arrow_schema(fields["ipc"]),
    "Event": _decode_event,
}
