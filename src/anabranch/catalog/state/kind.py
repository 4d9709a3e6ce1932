"""`StateKind`: the types of the keys and values of a kind of state, and their form in rows of the table `states`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from anabranch.catalog.state.codec import Codec, codec_of, stream_id, stream_id_text
from anabranch.core.json_text import parse_object
from anabranch.errors import AnabranchError, CorruptCatalog, FormatTooNew
from anabranch.model.names import StreamName

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound=tuple[Any, ...])

_NOT_DECODED: Final = (AnabranchError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class State(NamedTuple, Generic[K, V]):
    """One row of a kind."""

    key: K
    value: V


class Entry(NamedTuple):
    """A row of the table `states`, without its digest."""

    kind: str
    key: str
    lookup: str | None
    value: str


@dataclass(frozen=True, slots=True)
class KeyText(Generic[K]):
    """How a key is written as text. The order of the texts is the order in which rows are listed. `decode` raises
    ValueError or an error of the store. `shown` describes such keys, unless each kind describes its own."""

    encode: Callable[[K], str]
    decode: Callable[[str], K]
    shown: str = ""


STREAM_KEY: Final = KeyText(stream_id_text, stream_id, "the stream's id, 16 hex digits")
NAME_KEY: Final = KeyText(str, StreamName.parse)
TEXT_KEY: Final[KeyText[str]] = KeyText(str, str)


def only_key(text: str) -> KeyText[str]:
    """The key of a kind that has at most one row."""

    def decode(found: str) -> str:
        if found != text:
            raise ValueError(f"expected the key {text!r}")
        return found

    return KeyText(decode, decode, f"`{text}`")


@dataclass(frozen=True, slots=True, eq=False)
class StateKind(Generic[K, V]):
    """A kind of state: rows of the table `states` that hold values of one type.

    `lookup` returns the text by which rows are found other than by their key (`Reading.states_found`), which the
    database indexes; None for a row that is not looked up. `about`, `by` and `found_by` describe the kind, its key and
    its lookup in docs/reference/state.md. `identity` returns the key that a value itself contains. `example` is a row of the kind.
    """

    name: str
    about: str
    by: str
    found_by: str | None
    key: KeyText[K]
    value: Codec[V]
    example: State[K, V]
    lookup: Callable[[K, V], str | None]
    identity: Callable[[V], K] | None

    def entry(self, key: K, value: V) -> Entry:
        """The row that holds a value."""
        assert self.identity is None or self.identity(value) == key, f"a value of {self.name} under another key"
        return Entry(self.name, self.key.encode(key), self.lookup(key, value), compact_json(self.value.encode(value)))

    def decode(self, entry: Entry) -> State[K, V]:
        """The inverse of `entry`. Raises CorruptCatalog, which names the row, for a row that `entry` would not have
        made; FormatTooNew."""
        try:
            found = State(self.key.decode(entry.key), self.value.decode(parse_object(entry.value)))
            if self.key.encode(found.key) != entry.key:
                raise ValueError("its key does not have the form of this kind's keys")
            if self.identity is not None and self.identity(found.value) != found.key:
                raise ValueError("its value names another key")
            if self.lookup(found.key, found.value) != entry.lookup:
                raise ValueError(f"its lookup {entry.lookup!r:.100} does not match its value")
        except FormatTooNew:
            raise
        except _NOT_DECODED as exc:
            shown = f"{entry.kind}, {entry.key}"
            raise CorruptCatalog(
                f"the state ({shown[:200]}) of the catalog can't be read: {str(exc) or type(exc).__name__}",
                "states",
                shown,
            ) from exc
        return found


def state_kind(
    name: str,
    *,
    about: str,
    by: str | None = None,
    found_by: str | None = None,
    key: KeyText[K],
    value: type[V] | Codec[V],
    example: tuple[K, V],
    lookup: Callable[[K, V], str | None] = lambda _key, _value: None,
    identity: Callable[[V], K] | None = None,
) -> StateKind[K, V]:
    """Declare a kind. `value` is a class whose fields are the members of the JSON, or a codec."""
    codec = value if isinstance(value, Codec) else codec_of(value)
    return StateKind(name, about, by or key.shown, found_by, key, codec, State(*example), lookup, identity)


def versioned(codec: Codec[V], version: int, what: str) -> Codec[V]:
    """A codec of objects that also have the member `format`: FormatTooNew is raised for a later one than `version`, so
    that an older release leaves alone what it does not understand."""

    def encode(value: V) -> dict[str, Any]:
        return {"format": version, **codec.encode(value)}

    def decode(value: dict[str, Any]) -> V:
        members = dict(value)
        found = members.pop("format")
        if type(found) is not int or found < 1:
            raise ValueError(f"expected a format version from 1 on, got {found!r:.100}")
        if found > version:
            raise FormatTooNew(f"a {what}", found, version)
        return codec.decode(members)

    return Codec(encode, decode)


def parts_key(make: Callable[..., P], text: str, *decoders: Callable[[str], Any]) -> KeyText[P]:
    """Keys of several parts, with a slash between them and none within. `text` formats them: `{}/{:08}`."""

    def decode(found: str) -> P:
        return make(*[decode(part) for decode, part in zip(decoders, found.split("/"), strict=True)])

    return KeyText(lambda key: text.format(*key), decode)


def compact_json(value: object) -> str:
    """JSON without spaces and with sorted keys, so that equal values have equal text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def time_text(time: int) -> str:
    """A time in µs as text that sorts as times do: 16 hex digits."""
    return f"{time:016x}"
