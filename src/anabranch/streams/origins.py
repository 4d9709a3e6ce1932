"""Lineage: which streams the events of a stream came from, kept for as long as the stream lives.

What is kept does not rest on the sources: it holds their names of that time, and the nearest of what they had come from
themselves, so it can be told when they are long gone. A note costs the same however many came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.core.stretch import Stretch
from anabranch.model.ids import Micros, StreamId
from anabranch.model.origin import Ancestor, Origin, OriginPart

# Pieces by stream id: how many origins there are, and the first of them; by stream id and number: the next ones.
_LINEAGE: Final = "lineage"
_PAGE: Final = 16  # origins in one piece


def ahead_of_origins(txn: Writing, streams: Sequence[StreamId]) -> None:
    """Where their events came from is going to be looked at."""
    txn.ahead(pieces=[(_LINEAGE, f"{stream:016x}") for stream in streams])


def part_of(txn: Reading, stretch: Stretch) -> OriginPart:
    """A stretch of a stream as that is called now. To be taken before the stream is deleted."""
    info = stretch.view.info
    return OriginPart(
        info.id,
        str(info.name),
        str(stretch.start),
        str(stretch.end),
        stretch.events,
        ancestors=_ancestors(txn, info.id),
    )


def record_origin(txn: Writing, stream: StreamId, how: str, parts: Sequence[OriginPart], now: Micros) -> None:
    """Note that what the parts held was put into the stream."""
    ident = f"{stream:016x}"
    first = txn.piece(_LINEAGE, ident)
    count = 0 if first is None else int(str(first.value["count"]))
    origin = Origin(how, now, tuple(parts)).to_json()
    if count < _PAGE:
        before = [] if first is None else _origins(first)
        txn.put_piece(Checkpointed(_LINEAGE, ident, {"count": count + 1, "origins": [*before, origin]}))
        return
    assert first is not None
    page = txn.piece(_LINEAGE, name := f"{ident}/{count // _PAGE:08x}")
    txn.put_piece(Checkpointed(_LINEAGE, name, {"origins": [*([] if page is None else _origins(page)), origin]}))
    txn.put_piece(Checkpointed(_LINEAGE, ident, {**first.value, "count": count + 1}))


def origins_of(txn: Reading, stream: StreamId) -> tuple[Origin, ...]:
    """All that was noted, the oldest first, with the sources' names of now."""
    found = [Origin.from_json(each) for name in _pages(txn, stream) for each in _origins(txn.piece(_LINEAGE, name))]
    names: dict[StreamId, str | None] = {}
    for part in (part for origin in found for part in origin.parts):
        if part.source not in names:
            info = txn.stream(part.source)
            names[part.source] = None if info is None else str(info.name)
    return tuple(
        replace(origin, parts=tuple(replace(part, name_now=names[part.source]) for part in origin.parts))
        for origin in found
    )


def forget_origins(txn: Writing, stream: StreamId) -> None:
    """The stream is gone."""
    for name in _pages(txn, stream):
        txn.drop_piece(_LINEAGE, name)


def _pages(txn: Reading, stream: StreamId) -> list[str]:
    ident = f"{stream:016x}"
    first = txn.piece(_LINEAGE, ident)
    count = 0 if first is None else int(str(first.value["count"]))
    further = range(1, -(-count // _PAGE))
    return [ident, *(f"{ident}/{page:08x}" for page in further)] if count else []


def _origins(piece: Checkpointed | None) -> list[Any]:
    origins = [] if piece is None else piece.value["origins"]
    assert isinstance(origins, list)
    return origins


def _ancestors(txn: Reading, stream: StreamId) -> tuple[Ancestor, ...]:
    """The streams that a stream's events came from, the newest origins first, each once."""
    pages = _pages(txn, stream)
    newest = [txn.piece(_LINEAGE, name) for name in dict.fromkeys([*pages[-1:], *pages[:1]])]
    found: dict[StreamId, Ancestor] = {}
    for value in (value for piece in newest for value in reversed(_origins(piece))):
        origin = Origin.from_json(value)
        for part in origin.parts:
            found.setdefault(part.source, Ancestor(origin.how, origin.at, part.source, part.name))
            for ancestor in part.ancestors:
                found.setdefault(ancestor.source, ancestor)
    return tuple(islice(found.values(), limits.ANCESTORS_MAX))
