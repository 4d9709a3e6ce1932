"""Where the events of a stream came from, and where they went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.catalog.state.kind import STREAM_KEY, KeyText, StateKind, state_kind
from anabranch.core.copy import CopyResult
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.origin import Ancestor, Origin, OriginPart
from anabranch.model.relocation import Kept, RelocatedCut, Relocation


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
_STREAM: Final = StreamId(0x2BCD55E1E5C62EE7)
_SOURCE: Final = StreamId(0x41A7C0DE12345678)

LINEAGE: Final[StateKind[LineageKey, LineagePage]] = state_kind(
    "lineage",
    about="The lineage of streams: pages of the origins of their events, oldest first.",
    by="the stream's id, 16 hex digits; for further pages also `/` and the page, 8 hex digits",
    key=KeyText(lambda key: stream_id_text(key.stream) + (f"/{key.page:08x}" if key.page else ""), _decode),
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


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """`asked` holds the arguments: `start` and `end`, each `head`, `tail` or a cut; `independent`; `where`. For an
    import, `archive` is the digest of its metadata; for an attachment, `attached` is its location too."""

    result: CopyResult
    asked: Mapping[str, Any]


COPIED: Final[StateKind[StreamId, CopyRecord]] = state_kind(
    "copied",
    about="The source and the arguments of a copy, by which a repeated copy is recognised.",
    by="the id of the copy, 16 hex digits",
    key=STREAM_KEY,
    value=CopyRecord,
    identity=lambda record: record.result.copy,
    example=(
        _SOURCE,
        CopyRecord(
            CopyResult(
                _SOURCE,
                _STREAM,
                StreamCut(_STREAM, ((SegmentId(0, 0), 0),)),
                StreamCut(_STREAM, ((SegmentId(0, 0), 512),)),
            ),
            {"start": "head", "end": "tail"},
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Fork:
    """The fork begins as a copy of what `source` holds before `offset`, and then has the first `sub_offset` bytes of the
    message at `offset`."""

    source: StreamId
    offset: int
    sub_offset: int


FORK: Final[StateKind[StreamId, Fork]] = state_kind(
    "fork",
    about="A fork of a Durable Stream, which keeps the name of its source in use.",
    found_by="the id of its source, 16 hex digits",
    key=STREAM_KEY,
    value=Fork,
    lookup=lambda _, fork: stream_id_text(fork.source),
    example=(StreamId(0x2BCD55E1E5C62EE7), Fork(StreamId(0x41A7C0DE12345678), 512, 0)),
)


@dataclass(frozen=True, slots=True)
class Relocations:
    """One for each replacement, the oldest first."""

    moves: tuple[Relocation, ...]


RELOCATED: Final[StateKind[StreamId, Relocations]] = state_kind(
    "relocated",
    about="The mappings of a stream's offsets by replacements of time ranges.",
    key=STREAM_KEY,
    value=Relocations,
    example=(
        StreamId(0x2BCD55E1E5C62EE7),
        Relocations(
            (
                Relocation(
                    (RelocatedCut(SegmentId(0, 0), 40, 60, SegmentId(1, 1), SegmentId(2, 2), 100),),
                    (
                        Kept(SegmentId(0, 0), 0, 40, SegmentId(1, 1), 0),
                        Kept(SegmentId(0, 0), 60, 100, SegmentId(2, 2), 0),
                    ),
                ),
            )
        ),
    ),
)
