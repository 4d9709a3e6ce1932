"""What a Durable Stream was created with: its content type, its life time, and whether it was created closed. It is kept
in the stream's tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from anabranch.errors import InvalidArgument

DEFAULT_TYPE: Final = "application/octet-stream"
_TYPE: Final = "durable.content-type"
_TTL: Final = "durable.ttl"
_EXPIRES: Final = "durable.expires-at"
_UNTIL: Final = "durable.until"
_CLOSED: Final = "durable.created-closed"
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_MEDIA: Final = re.compile(r"[\w-]+/[\w-]+", re.ASCII)
_MICROS: Final = 1_000_000


class StreamConfig(NamedTuple):
    """`ttl_s`: how long the stream stays after the last read or append; `expires_at`: when it goes, as it was given."""

    content_type: str = DEFAULT_TYPE
    ttl_s: int | None = None
    expires_at: str | None = None
    created_closed: bool = False

    @property
    def json(self) -> bool:
        """True if the stream holds JSON messages."""
        return same_type(self.content_type, "application/json")

    def tags(self, now: int) -> dict[str, str]:
        """The tags of a stream that is created, read or appended to at `now` (µs)."""
        found = {_TYPE: self.content_type}
        if self.created_closed:
            found[_CLOSED] = "true"
        if self.ttl_s is not None:
            found[_TTL] = str(self.ttl_s)
            found[_UNTIL] = str(now + self.ttl_s * _MICROS)
        if self.expires_at is not None:
            found[_EXPIRES] = self.expires_at
            found[_UNTIL] = str(_moment(self.expires_at))
        return found

    def equals(self, other: StreamConfig) -> bool:
        """True if a second PUT with `other` is the same."""
        return same_type(self.content_type, other.content_type) and self[1:] == other[1:]


def config_of_headers(headers: Headers) -> StreamConfig:
    """What a PUT asks for. Raises InvalidArgument."""
    kind = headers.get("content-type", "").strip()
    ttl, expires = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires is not None:
        raise InvalidArgument("Stream-TTL and Stream-Expires-At can't both be given")
    if ttl is not None and not _WHOLE.fullmatch(ttl):
        raise InvalidArgument(f"expected Stream-TTL as a whole number of seconds, got '{ttl:.50}'")
    if expires is not None:
        _moment(expires)
    return StreamConfig(
        kind if _MEDIA.match(kind) else DEFAULT_TYPE, None if ttl is None else int(ttl), expires, wants_close(headers)
    )


def config_of_tags(tags: Mapping[str, str]) -> StreamConfig:
    """What the stream was created with; a raw stream that was created otherwise holds bytes."""
    return StreamConfig(tags.get(_TYPE, DEFAULT_TYPE), _number(tags, _TTL), tags.get(_EXPIRES), _CLOSED in tags)


def until_of(tags: Mapping[str, str]) -> int | None:
    """When the stream expires, in µs since 1970."""
    return _number(tags, _UNTIL)


def wants_close(headers: Headers) -> bool:
    """True if the request closes the stream."""
    return headers.get("stream-closed", "").lower() == "true"


def same_type(one: str, other: str) -> bool:
    """True if both are the same media type, whatever their parameters."""
    return _bare(one) == _bare(other)


def _number(tags: Mapping[str, str], name: str) -> int | None:
    """None also for what is no number: anybody who may manage the stream may change its tags."""
    text = tags.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _bare(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()


def _moment(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"expected Stream-Expires-At as an RFC 3339 time, got '{text:.50}'") from None
    if found.tzinfo is None:
        raise InvalidArgument(f"expected Stream-Expires-At with a time zone, got '{text:.50}'")
    return int(found.timestamp() * _MICROS)
