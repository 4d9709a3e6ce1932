"""Strict codecs between values and JSON, made from the declared types of the values.

A dataclass is a JSON object with a member per field, a NamedTuple an array of its fields, a tuple an array, a mapping an
object. A class with `to_json` and `from_json` has its own form. Decoding raises ValueError for anything that encoding
would not have written: a missing or unknown member, or a value of another type.
"""

from __future__ import annotations

import base64
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """Both directions. `decode` raises ValueError, TypeError, LookupError or an error of the store."""

    encode: Callable[[T], Any]
    decode: Callable[[Any], T]


def stream_id_text(stream: StreamId) -> str:
    """A stream's id as text: 16 lower-case hex digits."""
    return f"{stream:016x}"


def stream_id(text: str) -> StreamId:
    """The inverse of `stream_id_text`. Raises ValueError for any other text."""
    ident = StreamId(int(text, 16))
    if stream_id_text(ident) != text:
        raise ValueError(f"expected a stream id of 16 lower-case hex digits, got {text!r:.100}")
    return ident


def codec_of(kind: type[T]) -> Codec[T]:
    """The codec of a class."""
    hint: Any = kind
    found: Codec[T] = _codec(hint)
    return found


def bytes_member(name: str) -> Codec[bytes]:
    """The codec of bytes that are the only member of an object."""
    codec = codec_of(bytes)

    def decode(value: dict[str, Any]) -> bytes:
        if value.keys() != {name}:
            raise ValueError(f"expected the member {name}, got {sorted(value)!r:.200}")
        return codec.decode(value[name])

    return Codec(lambda value: {name: codec.encode(value)}, decode)


def own_json(encode: Callable[[T], Any], decode: Callable[[Any], T]) -> Codec[T]:
    """A codec from a type's own functions, made strict: what does not encode back to itself is refused."""

    def strict(value: Any) -> T:
        found = decode(value)
        again = encode(found)
        if again != value:
            raise ValueError(f"expected {again!r:.200}, got {value!r:.200}")
        return found

    return Codec(encode, strict)


@cache
def _codec(hint: Any) -> Codec[Any]:
    if hint in _LEAVES:
        return _LEAVES[hint]
    if isinstance(origin := get_origin(hint), type) or origin in (Union, Literal):
        return _generic(origin, get_args(hint))
    if supertype := getattr(hint, "__supertype__", None):  # a NewType
        return _codec(supertype)
    if not isinstance(hint, type):
        raise TypeError(f"no codec for {hint}")
    if issubclass(hint, Enum):
        return Codec(lambda value: value.value, hint)
    if hasattr(hint, "to_json"):
        return own_json(lambda value: value.to_json(), hint.from_json)  # type: ignore[attr-defined]
    if is_dataclass(hint):
        return _record(hint)
    if issubclass(hint, tuple) and hasattr(hint, "_make"):  # a NamedTuple
        return _array(tuple(map(_codec, get_type_hints(hint).values())), hint._make)
    raise TypeError(f"no codec for {hint}")


def _generic(origin: Any, args: tuple[Any, ...]) -> Codec[Any]:
    if origin is Literal:
        return Codec(_same, _one_of(args))
    if origin in (Union, types.UnionType):
        (inner,) = (_codec(arg) for arg in args if arg is not type(None))
        return Codec(
            lambda value: None if value is None else inner.encode(value),
            lambda value: None if value is None else inner.decode(value),
        )
    if origin is tuple:
        if args[-1] is Ellipsis:
            return _sequence(_codec(args[0]))
        return _array(tuple(map(_codec, args)), tuple)
    if issubclass(origin, Mapping):
        return _mapping(_KEYS[args[0]], _codec(args[1]))
    raise TypeError(f"no codec for {origin}")


def _same(value: Any) -> Any:
    return value


def _of(*types_: type) -> Callable[[Any], Any]:
    """Check a value's exact type, so that a bool does not count as an int."""

    def check(value: Any) -> Any:
        if type(value) not in types_:
            raise ValueError(f"expected {types_[0].__name__}, got {value!r:.100}")
        return value

    return check


def _one_of(allowed: tuple[Any, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"expected one of {', '.join(map(str, allowed))}, got {value!r:.100}")
        return value

    return check


def _record(kind: Any) -> Codec[Any]:
    hints = get_type_hints(kind)
    codecs = {field.name: _codec(hints[field.name]) for field in fields(kind)}
    encoders = [(name, codec.encode) for name, codec in codecs.items()]
    decoders = [(name, codec.decode) for name, codec in codecs.items()]

    def encode(value: Any) -> dict[str, Any]:
        return {name: encode(getattr(value, name)) for name, encode in encoders}

    def decode(value: Any) -> Any:
        if type(value) is not dict or value.keys() != codecs.keys():
            found = sorted(value) if type(value) is dict else value
            raise ValueError(f"expected the members {', '.join(codecs)}, got {found!r:.200}")
        return kind(*[decode(value[name]) for name, decode in decoders])

    return Codec(encode, decode)


def _array(codecs: tuple[Codec[Any], ...], make: Callable[[Any], Any]) -> Codec[Any]:
    encoders, decoders = [codec.encode for codec in codecs], [codec.decode for codec in codecs]

    def encode(value: Any) -> list[Any]:
        return [encode(item) for encode, item in zip(encoders, value, strict=True)]

    def decode(value: Any) -> Any:
        if type(value) is not list or len(value) != len(decoders):
            raise ValueError(f"expected an array of {len(decoders)} values, got {value!r:.100}")
        return make([decode(item) for decode, item in zip(decoders, value, strict=True)])

    return Codec(encode, decode)


def _sequence(item: Codec[Any]) -> Codec[Any]:
    encode, decode = item.encode, item.decode
    check = _of(list)
    return Codec(
        lambda value: [encode(each) for each in value], lambda value: tuple(decode(each) for each in check(value))
    )


def _mapping(key: Codec[Any], item: Codec[Any]) -> Codec[Any]:
    check = _of(dict)
    return Codec(
        lambda value: {key.encode(name): item.encode(each) for name, each in value.items()},
        lambda value: {key.decode(name): item.decode(each) for name, each in check(value).items()},
    )


_STREAM: Final = Codec(stream_id_text, stream_id)
_INT: Final = _of(int)
_TEXT: Final = _of(str)
_LEAVES: Final[Mapping[Any, Codec[Any]]] = {
    Any: Codec(_same, _same),  # any JSON
    object: Codec(_same, _same),
    str: Codec(_same, _TEXT),
    bool: Codec(_same, _of(bool)),
    int: Codec(_same, _INT),
    float: Codec(_same, _of(float, int)),
    bytes: own_json(lambda value: base64.b64encode(value).decode(), base64.b64decode),
    StreamId: Codec(stream_id_text, lambda text: stream_id(_TEXT(text))),
    SegmentId: Codec(lambda segment: segment.packed, lambda packed: SegmentId.unpack(_INT(packed))),
    StreamName: Codec(str, lambda text: StreamName.parse(_TEXT(text))),
    StreamCut: own_json(str, StreamCut.parse),
    KeyRange: own_json(
        lambda each: [f"{each.low:x}", f"{each.high:x}"], lambda edges: KeyRange(*(int(edge, 16) for edge in edges))
    ),
}
# Codecs of the keys of mappings.
_KEYS: Final[Mapping[Any, Codec[Any]]] = {
    str: Codec(_same, _TEXT),
    StreamId: _STREAM,
    LogId: own_json(str, int),
    SegmentId: own_json(lambda segment: f"{segment.packed:x}", lambda text: SegmentId.unpack(int(text, 16))),
}
