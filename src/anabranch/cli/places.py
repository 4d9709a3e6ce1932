"""Places in a stream as they are written after `--from`, `--to` and `--at`."""

from __future__ import annotations

import re

from anabranch.errors import InvalidArgument, InvalidCut, InvalidPointer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.readers import place as places
from anabranch.readers.place import Place, TimeKind
from anabranch.store import Store

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNIT_US = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_HEX = re.compile(r"[0-9a-f:@]{16,}\Z")


def parse_place(text: str, *, now: Micros) -> Place:
    """`head`, `tail`, a cut, a pointer, an ISO 8601 time, or `-15m` (ms, s, m, h, d) before now. Raises InvalidCut,
    InvalidPointer, InvalidArgument."""
    if ago := _AGO.match(text):
        return Micros(now - round(float(ago[1]) * _UNIT_US[ago[2]]))
    try:
        return places.parse_place(text)
    except (InvalidCut, InvalidPointer):
        raise
    except InvalidArgument as exc:
        if _HEX.match(text) and not text.isdigit():
            raise InvalidCut(f"'{text}' is neither a stream cut nor an event pointer: is it complete?") from exc
        raise InvalidArgument(
            f"'{text}' is no place in a stream: write head, tail, a stream cut, an event pointer, a time as "
            "2026-01-31T12:00:00Z, or -15m for 15 minutes ago"
        ) from exc


def parse_time(text: str, *, now: Micros) -> Micros:
    """A time alone, as above. Raises InvalidArgument."""
    place = parse_place(text, now=now)
    if not isinstance(place, int):
        raise InvalidArgument(f"'{text}' is no time: write 2026-01-31T12:00:00Z, or -15m for 15 minutes ago")
    return Micros(place)


def resolve(store: Store, stream: str, place: Place, *, by: TimeKind = "append") -> StreamCut:
    """The cut at a place. Raises as a reader that begins there."""
    with store.reader(stream, start=place, by=by) as reader:
        return reader.position
