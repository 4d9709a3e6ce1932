"""Measuring a job's progress from what it has written, the only record of it."""

from __future__ import annotations

from anabranch.catalog.port import Reading
from anabranch.catalog.state.job_plan import REPLACING
from anabranch.transfer.jobs.archived_files import archive_plan, complete_files
from anabranch.transfer.jobs.copy_where import filtered_so_far
from anabranch.transfer.jobs.members import members_of
from anabranch.transfer.jobs.progress import MeasuredProgress, RangeProgress
from anabranch.transfer.jobs.record import ARCHIVE, COPY_WHERE, REPLACE, JobRow, JobState, need_plan
from anabranch.transfer.jobs.replace_range import rewritten_so_far


def measure(txn: Reading, row: JobRow) -> MeasuredProgress:
    """The progress of a job that has not ended."""
    if row.verb == ARCHIVE:
        return _archive_progress(txn, row)
    if row.verb == COPY_WHERE:
        return filtered_so_far(txn, row)
    if row.verb == REPLACE:
        return _replacement_progress(txn, row)
    found = [_stages_progress(txn, each) for each in (members_of(txn, row) if row.members else (row,))]
    ranges = tuple(each for one in found for each in one.ranges)
    return MeasuredProgress(sum(one.events for one in found), sum(one.bytes for one in found), ranges)


def _stages_progress(txn: Reading, row: JobRow) -> MeasuredProgress:
    """The progress of a job that writes to logs, from the logs' lengths."""
    if row.state is JobState.DONE or row.result is not None:
        return MeasuredProgress(row.events, row.bytes, ())
    ranges = [
        (str(part.name), each)
        for number, part in enumerate(row.parts)
        for each in need_plan(txn, row.id, number).ranges
    ]
    logs = txn.logs([each.log for _, each in ranges]) if ranges else {}
    reached = tuple(
        RangeProgress(stream, str(r.segment), r.start, r.stop, r.start + logs[r.log].length) for stream, r in ranges
    )
    return MeasuredProgress(sum(log.length for log in logs.values()), sum(log.size for log in logs.values()), reached)


def _replacement_progress(txn: Reading, row: JobRow) -> MeasuredProgress:
    """The progress of a job that replaces: the events that it has stored again, at most as many as it needs by now."""
    doing = txn.state(REPLACING, row.id)
    events, size = rewritten_so_far(txn, row.id)
    scanned = None if doing is None else (doing.scanned, doing.total)
    return MeasuredProgress(min(events, row.events), min(size, row.bytes), (), scanned)


def _archive_progress(txn: Reading, row: JobRow) -> MeasuredProgress:
    """The progress of a job that writes files, from the complete files."""
    whole = complete_files(txn, row.id)
    events = size = 0
    reached: list[RangeProgress] = []
    for number in range(row.members):
        plan = archive_plan(txn, row.id, number)
        for index, each in enumerate(plan.ranges):
            there = (number, index) in whole
            come = each.stop if there else each.start
            reached.append(RangeProgress(str(plan.stream.name), str(each.segment), each.start, each.stop, come))
            events += each.events if there else 0
            size += each.bytes if there else 0
    return MeasuredProgress(events, size, tuple(reached))
