"""Jobs of several streams: each stream is a member, with a row like a job's own, and is completed in one transaction.

A member is planned when its turn comes, so that no more streams are begun than there is work for. The bundles of all
members share the job's window, which bounds the work in flight. One row represents the whole job: it is paused, resumed
and cancelled as one, and every step of a member checks that row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anabranch.catalog.port import Reading, Writing
from anabranch.model.ids import Micros
from anabranch.runtime.tasks import Tasks
from anabranch.transfer.jobs.bundles import bundled
from anabranch.transfer.jobs.context import JobContext, ProgressCounter
from anabranch.transfer.jobs.finish import drop_plans, drop_stages
from anabranch.transfer.jobs.record import (
    JobRange,
    JobRow,
    JobState,
    SourcePlan,
    drop_member,
    need_member,
    need_plan,
    put_job,
    put_member,
    rows_of_members,
)
from anabranch.transfer.jobs.remote_tasks import Bundle
from anabranch.transfer.jobs.window import Work

Move = Callable[[Sequence[JobRange]], None]


def members_of(txn: Reading, row: JobRow) -> list[JobRow]:
    """A job's members, in order."""
    return rows_of_members(txn, row.id) if row.members else []


def drop_members(txn: Writing, row: JobRow) -> None:
    """Delete the members of a job, and discard what was written for incomplete ones."""
    for member in members_of(txn, row):
        if not member.state.ended:
            drop_stages(txn, member)
            drop_plans(txn, member)
        drop_member(txn, member.id)


class MembersRun(ABC):
    """One run of a job of several streams."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._target = context.target
        self._counter = ProgressCounter(context, "copy", 0)

    # implemented by each kind of job

    @abstractmethod
    def read_source(self, member: JobRow) -> Any:
        """Read the source of a member whose turn has come, outside of any transaction; None if it no longer exists."""

    @abstractmethod
    def begin(self, txn: Writing, member: JobRow, source: Any, now: Micros) -> JobRow:
        """Create the stage of a member from what `read_source` returned. Returns its row with its part, or as done if the
        stream was already created."""

    @abstractmethod
    def mover(self, member: JobRow, plan: SourcePlan) -> Move:
        """The mover of a member's ranges in this process."""

    @abstractmethod
    def bundle(self, member: JobRow, plan: SourcePlan, ranges: Sequence[JobRange]) -> Bundle:
        """The bundle that a carrier moves."""

    @abstractmethod
    def make(self, txn: Writing, member: JobRow, plan: SourcePlan, now: Micros) -> dict[str, Any]:
        """Turn a member's complete stage into its stream. Returns the result as JSON."""

    # running

    def run(self, row: JobRow) -> JobRow:
        """Complete all members and the job. Raises as the job's run."""
        with self._target.catalog.reading() as snapshot:
            waiting = [member for member in members_of(snapshot, row) if not member.state.ended]
        self._counter = ProgressCounter(self._context, "copy", row.bytes, row.bytes_before)
        if self._context.carrier is None:
            self._context.run([partial(self._works, each) for each in waiting])
        else:
            self._carry(waiting)
        row = self._context.control.end(self._end)
        self._context.changed()
        return row

    def _works(self, member: JobRow) -> Sequence[Work]:
        """Plan a member. Returns the work that follows: moving its bundles, the last of which completes it."""
        planned = self._plan(member)
        if planned is None:
            return ()
        member, plan = planned
        works = bundled(plan.ranges)
        if not works:
            self._finish(member, plan)
            return ()
        move = self.mover(member, plan)
        left = _Countdown(self._target.runtime.tasks, len(works))

        def work(ranges: Sequence[JobRange]) -> None:
            move(ranges)
            if left.over():
                self._finish(member, plan)

        return [partial(work, each) for each in works]

    def _carry(self, waiting: Sequence[JobRow]) -> None:
        """Have all bundles of all members moved in other processes, then complete the members."""
        planned: dict[str, tuple[JobRow, SourcePlan]] = {}

        def plan(member: JobRow) -> None:
            if (found := self._plan(member)) is not None:
                planned[member.id] = found

        self._context.run([partial(plan, each) for each in waiting])
        bundles = [
            self.bundle(member, plan, each)
            for _, (member, plan) in sorted(planned.items())
            for each in bundled(plan.ranges)
        ]
        self._context.elsewhere(lambda carrier: carrier(bundles))
        self._context.run([partial(self._finish, *each) for _, each in sorted(planned.items())])

    def moved(self, _events: int, size: int) -> None:
        """Count what was appended, and call `progress` with logical bytes."""
        self._counter.add(size)

    # its transactions

    def _plan(self, member: JobRow) -> tuple[JobRow, SourcePlan] | None:
        """A member with its plan; None if the member is done, or its source no longer exists."""
        source = None if member.parts else self.read_source(member)

        def act(txn: Writing, row: JobRow) -> tuple[JobRow, SourcePlan] | None:
            current = need_member(txn, member.id)
            if not current.state.ended and not current.parts:
                estimated = current.amount
                current = self._staged(txn, current, source, self._target.runtime.clock.now())
                put_member(txn, current)
                more = (current.events - estimated[0], current.bytes - estimated[1])
                row = replace(row, amount=(row.amount[0] + more[0], row.amount[1] + more[1]))
                put_job(txn, row)
            self._counter.total = row.bytes
            return None if current.state.ended else (current, need_plan(txn, current.id, 0))

        return self._context.control.act(act)

    def _staged(self, txn: Writing, member: JobRow, source: Any, now: Micros) -> JobRow:
        if source is None:
            return replace(member, state=JobState.CANCELLED, amount=(0, 0))
        begun = self.begin(txn, member, source, now)
        return begun if begun.state.ended else replace(begun, amount=(0, 0))

    def _finish(self, member: JobRow, plan: SourcePlan) -> None:
        def act(txn: Writing, _: JobRow) -> None:
            current = need_member(txn, member.id)
            if not current.state.ended:
                result = self.make(txn, current, plan, self._target.runtime.clock.now())
                drop_plans(txn, current)
                put_member(txn, replace(current.released(JobState.DONE), result=result))

        self._context.control.act(act)
        self._context.changed()

    def _end(self, txn: Writing, row: JobRow) -> JobRow:
        made = [member for member in members_of(txn, row) if member.result is not None]
        results = [{"name": member.target, **(member.result or {})} for member in made]
        drop_members(txn, row)
        return replace(row, result={"streams": results})


class _Countdown:
    """Counts down. Thread-safe."""

    def __init__(self, tasks: Tasks, count: int) -> None:
        self._lock = tasks.lock()
        self._count = count

    def over(self) -> bool:
        """Count one down; True if it was the last."""
        with self._lock:
            self._count -= 1
            return not self._count
