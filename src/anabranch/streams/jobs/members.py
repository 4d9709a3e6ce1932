"""Jobs of several streams: each is a member, a row like a job's own, which becomes whole by itself in one transaction.

A member is planned when its turn comes, so that no more streams are begun than there is work for. Their bundles share the
job's window: what is in flight is bounded over all of them together. One row stands for the whole: it is paused, gone on
with and cancelled as one, and every step of a member is taken under it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from anabranch.catalog.port import Reading, Writing
from anabranch.errors import JobNotFound
from anabranch.model.ids import Micros
from anabranch.runtime.tasks import Tasks
from anabranch.streams.jobs.bundles import bundled
from anabranch.streams.jobs.carry import Bundle
from anabranch.streams.jobs.finish import drop_plans, drop_stages
from anabranch.streams.jobs.means import Means, insist
from anabranch.streams.jobs.row import JobRow, Plan, Range, State, need_plan
from anabranch.streams.jobs.window import Work

MEMBER: Final = "job_member"  # pieces by the id of a member, which begins with that of its job

Move = Callable[[Sequence[Range]], None]


def member_id(job: str, number: int) -> str:
    """The id of a job's `number`th member. Ids sort as numbers do."""
    return f"{job}.{number:06d}"


def members_of(txn: Reading, row: JobRow) -> list[JobRow]:
    """A job's members, in their order."""
    if not row.members:
        return []
    found = [piece for piece in txn.pieces(MEMBER) if piece.name.startswith(f"{row.id}.")]
    return sorted(map(JobRow.from_piece, found), key=lambda member: member.id)


def need_member(txn: Reading, ident: str) -> JobRow:
    """One member. Raises JobNotFound."""
    piece = txn.piece(MEMBER, ident)
    if piece is None:
        raise JobNotFound(ident)
    return JobRow.from_piece(piece)


def drop_members(txn: Writing, row: JobRow) -> None:
    """Forget the members of a job, and give up what was written for those that are not whole."""
    for member in members_of(txn, row):
        if not member.state.ended:
            drop_stages(txn, member)
            drop_plans(txn, member)
        txn.drop_piece(MEMBER, member.id)


class Members(ABC):
    """One run of a job of several streams."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._target = means.target
        self._lock = means.target.runtime.tasks.lock()
        self._done = self._total = 0

    # what a kind of job adds

    @abstractmethod
    def look(self, member: JobRow) -> Any:
        """See to the source of a member whose turn has come, outside of any transaction; None where it is gone."""

    @abstractmethod
    def begin(self, txn: Writing, member: JobRow, seen: Any, now: Micros) -> JobRow:
        """Stage a member of what `look` saw: the row with its part, or one that is done since it was made before."""

    @abstractmethod
    def mover(self, member: JobRow, plan: Plan) -> Move:
        """What moves ranges of a member here."""

    @abstractmethod
    def bundle(self, member: JobRow, plan: Plan, ranges: Sequence[Range]) -> Bundle:
        """What has a carrier move them."""

    @abstractmethod
    def make(self, txn: Writing, member: JobRow, plan: Plan, now: Micros) -> dict[str, Any]:
        """Turn a member's whole stage into its stream. Returns the result as JSON."""

    # running

    def run(self, row: JobRow) -> JobRow:
        """Make all members whole, and the job done. Raises as the job's run."""
        with self._target.catalog.reading() as snapshot:
            waiting = [member for member in members_of(snapshot, row) if not member.state.ended]
        self._done, self._total = row.bytes_before, row.bytes
        if self._means.carrier is None:
            self._window([partial(self._works, each) for each in waiting])
        else:
            self._carry(waiting)
        row = self._end()
        self._means.changed()
        return row

    def _window(self, works: Sequence[Work]) -> None:
        self._means.window.run(works, interrupted=lambda: self._means.control.stop(State.PAUSED))

    def _works(self, member: JobRow) -> Sequence[Work]:
        """Plan a member, and what follows from that: to move its bundles, the last of which makes it whole."""
        planned = self._plan(member)
        if planned is None:
            return ()
        member, plan = planned
        works = bundled(plan.ranges)
        if not works:
            self._finish(member, plan)
            return ()
        move = self.mover(member, plan)
        left = _Left(self._target.runtime.tasks, len(works))

        def work(ranges: Sequence[Range]) -> None:
            move(ranges)
            if left.over():
                self._finish(member, plan)

        return [partial(work, each) for each in works]

    def _carry(self, waiting: Sequence[JobRow]) -> None:
        """Have all bundles of all members moved elsewhere, then make the members whole."""
        planned: dict[str, tuple[JobRow, Plan]] = {}

        def plan(member: JobRow) -> None:
            if (found := self._plan(member)) is not None:
                planned[member.id] = found

        self._window([partial(plan, each) for each in waiting])
        bundles = [
            self.bundle(member, plan, each)
            for _, (member, plan) in sorted(planned.items())
            for each in bundled(plan.ranges)
        ]
        assert self._means.carrier is not None
        try:
            self._means.carrier(bundles)
        except Exception:
            self._means.control.look()  # what was asked to stop has not failed
            raise
        self._means.control.look()
        self._window([partial(self._finish, *each) for _, each in sorted(planned.items())])

    def moved(self, _events: int, size: int) -> None:
        """So much was appended. `progress` hears of logical bytes."""
        with self._lock:
            self._done += size
            self._means.progress("copy", self._done, self._total)

    # its transactions

    def _plan(self, member: JobRow) -> tuple[JobRow, Plan] | None:
        """A member with its plan; None where there is nothing to do for it, any more or at all."""
        seen = None if member.parts else self.look(member)

        def act() -> tuple[JobRow, Plan] | None:
            now = self._target.runtime.clock.now()
            with self._target.catalog.writing() as txn:
                row = self._means.control.step(txn)
                known = need_member(txn, member.id)
                if not known.state.ended and not known.parts:
                    guessed = known.amount
                    known = self._staged(txn, known, seen, now)
                    txn.put_piece(known.to_piece(MEMBER))
                    more = (known.events - guessed[0], known.bytes - guessed[1])
                    row = replace(row, amount=(row.amount[0] + more[0], row.amount[1] + more[1]))
                    txn.put_piece(row.to_piece())
                return None if known.state.ended else (known, need_plan(txn, known.id, 0))

        return insist(self._target.runtime.tasks, act)

    def _staged(self, txn: Writing, member: JobRow, seen: Any, now: Micros) -> JobRow:
        if seen is None:
            return replace(member, state=State.CANCELLED, amount=(0, 0))
        begun = self.begin(txn, member, seen, now)
        return begun if begun.state.ended else replace(begun, amount=(0, 0))

    def _finish(self, member: JobRow, plan: Plan) -> None:
        def act() -> None:
            now = self._target.runtime.clock.now()
            with self._target.catalog.writing() as txn:
                self._means.control.step(txn)
                known = need_member(txn, member.id)
                if not known.state.ended:
                    result = self.make(txn, known, plan, now)
                    drop_plans(txn, known)
                    txn.put_piece(replace(known.released(State.DONE), result=result).to_piece(MEMBER))

        insist(self._target.runtime.tasks, act)
        self._means.changed()

    def _end(self) -> JobRow:
        def act() -> JobRow:
            with self._target.catalog.writing() as txn:
                row = self._means.control.step(txn)
                made = [member for member in members_of(txn, row) if member.result is not None]
                told = [{"name": member.target, **(member.result or {})} for member in made]
                drop_members(txn, row)
                row = replace(row.released(State.DONE), result={"streams": told})
                txn.put_piece(row.to_piece())
                return row

        return insist(self._target.runtime.tasks, act)


class _Left:
    """Counts down. Thread-safe."""

    def __init__(self, tasks: Tasks, count: int) -> None:
        self._lock = tasks.lock()
        self._count = count

    def over(self) -> bool:
        """One less; True if that was the last."""
        with self._lock:
            self._count -= 1
            return not self._count
