"""How far a job has come: nothing says so but what it has written, so it is looked up there."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.catalog.port import Reading
from anabranch.streams.jobs.filed import archive_plan, filed
from anabranch.streams.jobs.members import members_of
from anabranch.streams.jobs.progress import Reached
from anabranch.streams.jobs.row import ARCHIVE, JobRow, State, need_plan


class Measured(NamedTuple):
    """Events and logical bytes that were moved, and how far each range has come that is known yet and not part of a
    stream that is whole."""

    events: int
    bytes: int
    ranges: tuple[Reached, ...]


def measure(txn: Reading, row: JobRow) -> Measured:
    """How far a job has come that has not ended."""
    if row.verb == ARCHIVE:
        return _of_archive(txn, row)
    found = [_of_stages(txn, each) for each in (members_of(txn, row) if row.members else (row,))]
    ranges = tuple(each for one in found for each in one.ranges)
    return Measured(sum(one.events for one in found), sum(one.bytes for one in found), ranges)


def _of_stages(txn: Reading, row: JobRow) -> Measured:
    """Of what is written to logs: how long these are."""
    if row.state is State.DONE or row.result is not None:
        return Measured(row.events, row.bytes, ())
    ranges = [
        (str(part.name), each)
        for number, part in enumerate(row.parts)
        for each in need_plan(txn, row.id, number).ranges
    ]
    logs = txn.logs([each.log for _, each in ranges]) if ranges else {}
    reached = tuple(
        Reached(stream, str(r.segment), r.start, r.stop, r.start + logs[r.log].length) for stream, r in ranges
    )
    return Measured(sum(log.length for log in logs.values()), sum(log.size for log in logs.values()), reached)


def _of_archive(txn: Reading, row: JobRow) -> Measured:
    """Of files: which are whole."""
    whole = filed(txn, row.id)
    events = size = 0
    reached: list[Reached] = []
    for number in range(row.members):
        plan = archive_plan(txn, row.id, number)
        for index, each in enumerate(plan.ranges):
            there = (number, index) in whole
            come = each.stop if there else each.start
            reached.append(Reached(str(plan.stream.name), str(each.segment), each.start, each.stop, come))
            events += each.events if there else 0
            size += each.bytes if there else 0
    return Measured(events, size, tuple(reached))
