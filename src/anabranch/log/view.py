"""Loads views of streams, and refreshes them cheaply."""

from __future__ import annotations

from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.lineage import RELOCATED, Relocations
from anabranch.core.byte_stream import became_bytes
from anabranch.errors import StreamNotFound
from anabranch.model.ids import StreamId
from anabranch.model.relocation import Relocation
from anabranch.model.stream import StreamInfo, StreamView


def load(reading: Reading, stream: StreamId) -> StreamView:
    """The stream as of this snapshot. Raises StreamNotFound."""
    view = reading.view(stream)
    if view is None:
        raise StreamNotFound(f"{stream:016x}")
    # A replacement makes all segments new, so a stream that was never replaced costs no further query.
    return view if view.ordered[0].created == 0 else replace(view, relocations=relocations_of(reading, stream))


def relocations_of(reading: Reading, stream: StreamId) -> tuple[Relocation, ...]:
    """How replacements moved the offsets of a stream, the oldest first."""
    found = reading.state(RELOCATED, stream)
    return () if found is None else found.moves


def add_relocation(txn: Writing, stream: StreamId, move: Relocation) -> None:
    """Records one more replacement in a stream. Keeps the latest within REPLACEMENTS_KEPT and REPLACE_MOVES_MAX."""
    kept: list[Relocation] = []
    for each in (move, *reversed(relocations_of(txn, stream))):
        room = limits.REPLACE_MOVES_MAX - sum(len(one.kept) + len(one.standing) for one in kept)
        if len(kept) >= limits.REPLACEMENTS_KEPT or len(each.kept) + len(each.standing) > room:
            break
        kept.insert(0, each)
    txn.put_state(RELOCATED, stream, Relocations(tuple(kept)))


def drop_relocations(txn: Writing, stream: StreamId) -> None:
    """Removes the records of a deleted stream."""
    txn.drop_state(RELOCATED, stream)


def with_current_spans(reading: Reading, view: StreamView) -> StreamView:
    """The stream with the heads and spans of this snapshot. Returns `view` itself, whose lengths may be older, unless
    the stream was changed in another way than by appends. One look-up. Raises StreamNotFound.

    Needed before reading logs at another moment than the view's: a segment may have been flattened since, and the
    logs that it had may be collected.
    """
    info = reading.stream(view.info.id)
    if info is None:
        raise StreamNotFound(str(view.info.name))
    return view if info.version == view.info.version else _reload(reading, view)


def _reload(reading: Reading, view: StreamView) -> StreamView:
    fresh = load(reading, view.info.id)
    refuse_other_kind(fresh.info, raw=view.info.schema.raw)
    return fresh


def refuse_other_kind(info: StreamInfo, *, raw: bool) -> None:
    """Raises Conflict if the stream was raw and has become a byte stream."""
    if raw and not info.schema.raw:
        raise became_bytes(info.name)


def refresh(reading: Reading, view: StreamView) -> StreamView:
    """The same stream as of this snapshot; `view` itself if nothing was appended or changed.

    Reads segments and spans again only if the stream's version rose, else only the lengths of its open logs. Raises
    StreamNotFound, and Conflict for a raw stream that has become a byte stream.
    """
    info = reading.stream(view.info.id)
    if info is None:
        raise StreamNotFound(str(view.info.name))
    if info.version != view.info.version:
        return _reload(reading, view)
    if info.sealed:
        return view
    followed = [log for segment in view.current if (log := view.open_log(segment.id)) is not None]
    logs = reading.logs(followed) if followed else {}
    if all(view.logs[log].length == state.length for log, state in logs.items()):
        return view
    return replace(view, info=info, logs={**view.logs, **logs})
