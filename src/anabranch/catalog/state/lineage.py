"""The lineage of streams: pages of the origins of their events, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import stream_id
from anabranch.catalog.state.kind import KeyText, StateKind, state_kind, stream_key
from anabranch.model.ids import Micros, StreamId
from anabranch.model.origin import Ancestor, Origin, OriginPart


class LineageKey(NamedTuple):
    """A page of a stream's origins, from 0."""

    stream: StreamId
    page: int


@dataclass(frozen=True, slots=True)
class LineagePage:
    """Some origins of a stream. `count` is the number of all, on the first page; None on others."""

    origins: tuple[Origin, ...]
    count: int | None = None


def _decode(text: str) -> LineageKey:
    ident, slash, page = text.partition("/")
    return LineageKey(stream_id(ident), int(page, 16) if slash else 0)


_CUT: Final = "{0:016x}:0000000000000000@{1:x}".format
_SOURCE: Final = StreamId(0x41A7C0DE12345678)

LINEAGE: Final[StateKind[LineageKey, LineagePage]] = state_kind(
    "lineage",
    by="the stream's id, 16 hex digits; for further pages also `/` and the page, 8 hex digits",
    key=KeyText(lambda key: stream_key(key.stream) + (f"/{key.page:08x}" if key.page else ""), _decode),
    value=LineagePage,
    example=(
        LineageKey(StreamId(0x2BCD55E1E5C62EE7), 0),
        LineagePage(
            (
                Origin(
                    "copied",
                    Micros(1_767_225_600_000_000),
                    (
                        OriginPart(
                            _SOURCE,
                            "iot/raw",
                            _CUT(_SOURCE, 0),
                            _CUT(_SOURCE, 512),
                            512,
                            ancestors=(
                                Ancestor(
                                    "imported", Micros(1_735_689_600_000_000), StreamId(0x1122334455667788), "old/raw"
                                ),
                            ),
                        ),
                    ),
                ),
            ),
            count=1,
        ),
    ),
)
