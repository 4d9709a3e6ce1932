"""Parses places in a stream as written after `--from`, `--to` and `--at`."""

from __future__ import annotations

import re

from anabranch.cli.options import time_rules
from anabranch.errors import InvalidArgument, InvalidCut, InvalidPointer
from anabranch.model.amounts import time_ago
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.time_kind import TimeKind
from anabranch.reading import bounds as places
from anabranch.reading.bounds import Place
from anabranch.store import Store

_HEX = re.compile(r"[0-9a-f:@]{16,}\Z")


def parse_place(text: str, *, now: Micros) -> Place:
    """Parses `head`, `tail`, a cut, a pointer, an ISO 8601 time, or `-15m` (ms, s, m, h, d, w) before now. Raises
    InvalidCut, InvalidPointer, InvalidArgument."""
    if (ago := time_ago(text, now)) is not None:
        return Micros(ago)
    try:
        return places.parse_place(text, time_rules())
    except (InvalidCut, InvalidPointer):
        raise
    except InvalidArgument as exc:
        if exc.__cause__ is None:  # it is a time, and was refused as such
            raise
        if _HEX.match(text) and not text.isdigit():
            raise InvalidCut(f"'{text}' is neither a stream cut nor an event pointer: is it complete?") from exc
        raise InvalidArgument(
            f"'{text}' is not a position in a stream: expected head, tail, a stream cut, an event pointer, a time such as "
            "2026-01-31T12:00:00Z, or -15m for 15 minutes ago"
        ) from exc


def parse_time(text: str, *, now: Micros) -> Micros:
    """Parses a time, ISO 8601 or before now. Raises InvalidArgument."""
    place = parse_place(text, now=now)
    if not isinstance(place, int):
        raise InvalidArgument(f"'{text}' is not a time: expected 2026-01-31T12:00:00Z, or -15m for 15 minutes ago")
    return Micros(place)


def resolve(store: Store, stream: str, place: Place, *, by: TimeKind = "append") -> StreamCut:
    """Returns the cut at a place. Raises the same errors as a reader that starts there."""
    with store.reader(stream, start=place, by=by) as reader:
        return reader.position
