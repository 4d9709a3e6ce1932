"""Running a job: its bundles of ranges in a window, then its last transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.errors import AnabranchError, JobRunning
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import StreamId
from anabranch.streams.find import need_view
from anabranch.streams.jobs.beat import Beat
from anabranch.streams.jobs.bundles import bundles
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.carry import Bundle, Carrier
from anabranch.streams.jobs.control import Control, Stopped
from anabranch.streams.jobs.finish import drop_plans, drop_stages, finish_job
from anabranch.streams.jobs.follow import Follower, open_positions
from anabranch.streams.jobs.gauge import Gauge
from anabranch.streams.jobs.move import Mover
from anabranch.streams.jobs.row import JobRow, Part, Plan, Range, State, need_job, need_plan
from anabranch.streams.jobs.sieve import preferred, sieve_of
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.until import Until
from anabranch.streams.jobs.window import Window


class Run:
    """One run of a job in this process."""

    def __init__(
        self,
        source: Site,
        target: Site,
        job: str,
        *,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.control = Control(target, job)
        self.window = Window(target.runtime.tasks, window)
        self.gauge = Gauge(target.runtime.tasks)
        self._source = source
        self._target = target
        self._carrier = carrier
        self._progress = progress
        self._changed = changed
        self._telling = target.runtime.tasks.lock()
        self._done = self._total = 0

    def begin(self, *, take_over: bool = False) -> JobRow:
        """Make the job this run's. Raises as `Control.begin`."""
        return self.control.begin(take_over=take_over, moved=_moved)

    def carry_out(self, row: JobRow) -> JobRow:
        """Do what was begun until it has ended; returns the job's row as it is left: done, paused or cancelled.

        Whatever stops it, what was appended stays, and another run goes on from there. Raises JobRunning, and what
        moving and finishing raise, after which the job has failed.
        """
        if row.state is State.DONE:
            return row
        try:
            runtime = self._target.runtime
            with Hold(self._target.catalog, runtime, "job", row.id) as hold, Beat(self.control, hold, runtime):
                return self._work(row, hold)
        except Stopped as exc:
            return self._settle(exc.state)
        except JobRunning:
            raise
        except Exception as exc:
            with suppress(AnabranchError):
                self._settle(State.FAILED, f"{type(exc).__name__}: {exc}")
            raise
        except BaseException:
            with suppress(AnabranchError):
                self._settle(State.PAUSED)
            raise

    def _work(self, row: JobRow, hold: Hold) -> JobRow:
        if row.result is None:
            with self._target.catalog.reading() as snapshot:
                plans = [need_plan(snapshot, row.id, number) for number in range(len(row.parts))]
            if self._carrier is None:
                self._move(row, plans, hold)
            else:
                self._carry(self._carrier, row, plans, hold)
            row = self._finish(plans)
        if "follow" in row.options:
            row = self._follow(row, hold)
        return row

    def _move(self, row: JobRow, plans: Sequence[Plan], hold: Hold) -> None:
        self._done, self._total = row.bytes_before, row.bytes
        cargoes = [self._cargo(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        order = preferred(row)
        sieve = None
        if "deduplicate" in row.options:
            sieve = sieve_of(
                row, [(cargoes[n], plans[n]) for n in order], self.control, self._target.runtime.tasks, self._progress
            )
            self._note(sieve.repeats)
        works = []
        for number in order:
            stage = row.parts[number].stage
            mover = Mover(cargoes[number], self._target, stage, self.control, hold, self.gauge, self._tell, sieve=sieve)
            works += [lambda each=each, mover=mover: mover.move(each) for each in bundled(plans[number].ranges)]
        try:
            self.window.run(works, interrupted=lambda: self.control.stop(State.PAUSED))
        finally:
            if sieve is not None:
                sieve.close()

    def _carry(self, carrier: Carrier, row: JobRow, plans: Sequence[Plan], hold: Hold) -> None:
        """Have the bundles moved elsewhere. Whether all is there, the last transaction makes sure."""
        bundles = [
            Bundle(row.id, self.control.owner, hold.lease, part.stream, part.stage, plan.schema_version, tuple(each))
            for part, plan in zip(row.parts, plans, strict=True)
            for each in bundled(plan.ranges)
        ]
        try:
            carrier(bundles)
        except Exception:
            self.control.look()  # what was asked to stop has not failed
            raise
        self.control.look()

    def _note(self, repeats: int) -> None:
        with self._target.catalog.writing(f"job {self.control.job}") as txn:
            txn.put_piece(replace(self.control.step(txn), repeats=repeats).to_piece())

    def _follow(self, row: JobRow, hold: Hold) -> JobRow:
        until = Until.from_json(row.options["follow"])
        return Follower(
            self._source,
            self._target,
            row.parts[0],
            until,
            shared=bool(row.options.get("shared")),
            control=self.control,
            window=self.window,
            hold=hold,
            gauge=self.gauge,
            progress=self._progress,
            changed=self._changed,
        ).run()

    def _cargo(self, part: Part, plan: Plan) -> Cargo:
        with self._target.catalog.reading() as snapshot:
            schemas = [snapshot.schema(part.stage, version) for version in range(1, plan.schema_version + 1)]
        return Cargo(self._source, part.stream, schemas)

    def _tell(self, events: int, size: int) -> None:
        with self._telling:
            self._done += size
            self._progress("copy", self._done, self._total)

    def _finish(self, plans: Sequence[Plan]) -> JobRow:
        now = self._target.runtime.clock.now()
        stream = StreamId(self._target.runtime.ids.bits(63))
        with self._target.catalog.writing() as txn:
            row = self.control.step(txn)
            result = finish_job(txn, row, plans, stream, now)
            drop_plans(txn, row)
            row = replace(row, result=result)
            if "follow" in row.options:
                row = replace(row, positions=open_positions(need_view(txn, row.parts[0].stage)))
            else:
                row = row.released(State.DONE)
            txn.put_piece(row.to_piece())
        self._changed()
        return row

    def _settle(self, state: State, error: str | None = None) -> JobRow:
        """Give the job up in some state, if it is still this run's."""
        with self._target.catalog.writing() as txn:
            return settle(txn, need_job(txn, self.control.job), state, error, owner=self.control.owner)


def settle(txn: Writing, row: JobRow, state: State, error: str | None = None, *, owner: str | None = None) -> JobRow:
    """Leave a job in some state; a cancelled one gives up what it wrote. Nothing is done where `owner` is given and is
    not the job's any more, or the job has ended."""
    if row.state.ended or (owner is not None and row.owner != owner):
        return row
    row = row.released(state, error)
    if state is State.CANCELLED and row.result is None:
        drop_stages(txn, row)
        drop_plans(txn, row)
    txn.put_piece(row.to_piece())
    return row


def bundled(ranges: Sequence[Range]) -> list[Sequence[Range]]:
    """Ranges as they are moved by one task after another."""
    edges = bundles(
        [each.size for each in ranges], bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_BUNDLE_RANGES_MAX
    )
    return [ranges[first:stop] for first, stop in edges]


def _moved(txn: Reading, row: JobRow) -> int:
    """Logical bytes that lie in the job's stages."""
    views = [txn.view(part.stage) for part in row.parts]
    return sum(log.size for view in views if view is not None for log in view.logs.values())
