"""Deleting the sources of a stitch once all their events are in place elsewhere, and durable there."""

from __future__ import annotations

from anabranch.catalog.port import Reading, Writing
from anabranch.core.cuts import read_offsets
from anabranch.errors import Conflict
from anabranch.model.cut import Edge
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.transfer.jobs.record import JobRow, JobSource


def delete_sources(txn: Writing, row: JobRow, store: int, now: Micros) -> None:
    """Delete the sources of a job in its store number `store`, all or none. Sources already deleted are skipped, so it
    can be repeated. The transaction is one of their store, with no subject. Raises as `refuse_written`."""
    for view in refuse_written(txn, row, store):
        delete_stream(txn, view.info.id, now)


def refuse_written(txn: Reading, row: JobRow, store: int) -> list[StreamView]:
    """The sources of a job that exist in its store number `store`. Raises Conflict if a source that was requested up to
    its tail holds more events by now, which would be lost."""
    parts: dict[StreamId, list[JobSource]] = {}
    for part in row.parts:
        if part.store == store:
            parts.setdefault(part.stream, []).append(part)
    found = []
    for stream, of_stream in parts.items():
        view = txn.view(stream)
        if view is None:
            continue
        more = min(_later_events(view, part) for part in of_stream)
        if more:
            raise Conflict(
                f"'{view.info.name}' has {more} event(s) that were written since job {row.id} began and are not in "
                f"'{row.target}', so it is kept. Stop its writers, append these to the target, and delete it yourself; then "
                "cancel the job"
            )
        found.append(view)
    return found


def _later_events(view: StreamView, part: JobSource) -> int:
    """The number of events after the requested range; 0 if the source was not requested up to its tail."""
    if part.asked["end"] != Edge.TAIL.value:
        return 0
    ends = read_offsets(view, part.end)
    return sum(
        view.length(segment.id) - max(segment.head, ends.get(segment.id, segment.head)) for segment in view.ordered
    )
