"""Lineage: which streams the events of a stream came from, kept as long as the stream exists.

The record does not depend on the sources: it holds their names at the time and their own nearest origins, so it remains
readable after they are deleted. The cost of adding an origin does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.lineage import LINEAGE, LineageKey, LineagePage
from anabranch.core.stream_slice import StreamSlice
from anabranch.model.ids import Micros, StreamId
from anabranch.model.origin import Ancestor, Origin, OriginPart

_PAGE: Final = 16  # origins on one page


def prefetch_origins(txn: Writing, streams: Sequence[StreamId]) -> None:
    """Prefetch the lineage entries of these streams; see `Writing.prefetch`."""
    txn.prefetch(states=[(LINEAGE, LineageKey(stream, 0)) for stream in streams])


def origin_part(txn: Reading, part_slice: StreamSlice) -> OriginPart:
    """A stream slice as an origin, under the stream's current name. To be taken before the stream is deleted."""
    info = part_slice.view.info
    return OriginPart(
        info.id,
        str(info.name),
        str(part_slice.start),
        str(part_slice.end),
        part_slice.events,
        ancestors=_ancestors(txn, info.id),
    )


def record_origin(txn: Writing, stream: StreamId, how: str, parts: Sequence[OriginPart], now: Micros) -> None:
    """Record that the events of the parts were added to the stream."""
    first = _page(txn, stream, 0)
    count = first.count or 0
    origin = Origin(how, now, tuple(parts))
    if count < _PAGE:
        txn.put_state(LINEAGE, LineageKey(stream, 0), LineagePage((*first.origins, origin), count + 1))
        return
    last = count // _PAGE
    txn.put_state(LINEAGE, LineageKey(stream, last), LineagePage((*_page(txn, stream, last).origins, origin)))
    txn.put_state(LINEAGE, LineageKey(stream, 0), replace(first, count=count + 1))


def origins_of(txn: Reading, stream: StreamId) -> tuple[Origin, ...]:
    """All recorded origins, the oldest first, with the sources' current names."""
    found = [origin for page in range(_pages(txn, stream)) for origin in _page(txn, stream, page).origins]
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
    """Remove the lineage of a deleted stream."""
    for page in range(_pages(txn, stream)):
        txn.drop_state(LINEAGE, LineageKey(stream, page))


def _page(txn: Reading, stream: StreamId, page: int) -> LineagePage:
    return txn.state(LINEAGE, LineageKey(stream, page)) or LineagePage(())


def _pages(txn: Reading, stream: StreamId) -> int:
    return -(-(_page(txn, stream, 0).count or 0) // _PAGE)


def _ancestors(txn: Reading, stream: StreamId) -> tuple[Ancestor, ...]:
    """The streams that a stream's events came from, the newest origins first, each once."""
    last = max(_pages(txn, stream) - 1, 0)
    newest = [_page(txn, stream, page) for page in dict.fromkeys([last, 0])]
    found: dict[StreamId, Ancestor] = {}
    for origin in (origin for page in newest for origin in reversed(page.origins)):
        for part in origin.parts:
            found.setdefault(part.source, Ancestor(origin.how, origin.at, part.source, part.name))
            for ancestor in part.ancestors:
                found.setdefault(ancestor.source, ancestor)
    return tuple(islice(found.values(), limits.ANCESTORS_MAX))
