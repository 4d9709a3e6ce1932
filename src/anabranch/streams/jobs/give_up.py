"""Giving up the sources of a stitch once all they held is in place elsewhere, and durable there."""

from __future__ import annotations

from anabranch.catalog.port import Reading, Writing
from anabranch.core.cuts import reached
from anabranch.errors import Conflict
from anabranch.model.cut import Edge
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.streams.create import delete_stream
from anabranch.streams.jobs.row import JobRow, Part


def give_up_sources(txn: Writing, row: JobRow, store: int, now: Micros) -> None:
    """Delete the sources of a job that live in its store of this number, all or none; those that are gone stay so, so it
    may be asked for again. The transaction is one of their store, on no subject. Raises as `refuse_written`."""
    for view in refuse_written(txn, row, store):
        delete_stream(txn, view.info.id, now)


def refuse_written(txn: Reading, row: JobRow, store: int) -> list[StreamView]:
    """The sources of a job that live in its store of this number, and are there. Raises Conflict where one that was
    wanted to its end holds more by now: that would be lost with it."""
    parts: dict[StreamId, list[Part]] = {}
    for part in row.parts:
        if part.store == store:
            parts.setdefault(part.stream, []).append(part)
    found = []
    for stream, of_stream in parts.items():
        view = txn.view(stream)
        if view is None:
            continue
        more = min(_behind(view, part) for part in of_stream)
        if more:
            raise Conflict(
                f"'{view.info.name}' holds {more} event(s) that were written since job {row.id} began, and '{row.target}' "
                "lacks: it stays. Stop its writers, append these to the target, and delete it yourself; then cancel the job"
            )
        found.append(view)
    return found


def _behind(view: StreamView, part: Part) -> int:
    """How many events lie behind what was wanted; 0 where somebody wanted no more than that."""
    if part.asked["end"] != Edge.TAIL.value:
        return 0
    ends = reached(view, part.end)
    return sum(
        view.length(segment.id) - max(segment.head, ends.get(segment.id, segment.head)) for segment in view.ordered
    )
