"""Running a job: its bundles of ranges in a window, then its last transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.errors import AnabranchError, CorruptArchive, InvalidArgument, JobRunning
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import StreamId
from anabranch.streams.find import need_view
from anabranch.streams.jobs.archive import Archiving, files_of, remove_files
from anabranch.streams.jobs.beat import Beat
from anabranch.streams.jobs.bundles import bundled
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.carry import Carrier, Moving
from anabranch.streams.jobs.control import Control, Stopped
from anabranch.streams.jobs.copy_scope import ScopeCopy
from anabranch.streams.jobs.filed import drop_files
from anabranch.streams.jobs.finish import drop_plans, drop_stages, finish_job
from anabranch.streams.jobs.follow import Follower, open_positions
from anabranch.streams.jobs.gauge import Gauge
from anabranch.streams.jobs.give_up import give_up_sources, refuse_written
from anabranch.streams.jobs.import_archive import Importing
from anabranch.streams.jobs.means import Means, insist
from anabranch.streams.jobs.measure import measure
from anabranch.streams.jobs.members import drop_members
from anabranch.streams.jobs.move import Mover
from anabranch.streams.jobs.row import ARCHIVE, COPY_SCOPE, IMPORT, JobRow, Part, Plan, State, need_job, need_plan
from anabranch.streams.jobs.sieve import Looked, columns_compared, preferred, sieve_of, there_already
from anabranch.streams.jobs.sift import Sifted, Sifter, sift
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.until import Until
from anabranch.streams.jobs.window import Window


class Worker(Protocol):
    """Carries out jobs of one kind."""

    def run(self, row: JobRow) -> JobRow:
        """Do what is missing of a job. Returns its row, done."""
        ...


_WORKERS: Final[Mapping[str, Callable[[Means], Worker]]] = {
    COPY_SCOPE: ScopeCopy,
    ARCHIVE: Archiving,
    IMPORT: Importing,
}


class Run:
    """One run of a job in this process; `sources` are the stores of `JobRow.places`."""

    def __init__(
        self,
        sources: Sequence[Site],
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
        self._sources = sources
        self._target = target
        self._carrier = carrier
        self._progress = progress
        self._changed = changed
        self._telling = target.runtime.tasks.lock()
        self._done = self._total = 0

    def begin(self, *, take_over: bool = False) -> JobRow:
        """Make the job this run's. Raises as `Control.begin`."""

        def act() -> JobRow:
            return self.control.begin(take_over=take_over, moved=lambda txn, row: measure(txn, row).bytes)

        return insist(self._target.runtime.tasks, act)

    def carry_out(self, row: JobRow) -> JobRow:
        """Do what was begun until it has ended; returns the job's row as it is left: done, paused or cancelled.

        Whatever stops it, what was appended stays, and another run goes on from there; but of an archive that turns out to
        be corrupt nothing half-imported stays, and the job is cancelled. Raises JobRunning, and what moving and finishing
        raise, after which the job has failed.
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
            in_vain = row.verb == IMPORT and isinstance(exc, CorruptArchive)
            with suppress(AnabranchError):
                self._settle(State.CANCELLED if in_vain else State.FAILED, f"{type(exc).__name__}: {exc}")
            raise
        except BaseException:
            with suppress(AnabranchError):
                self._settle(State.PAUSED)
            raise

    def _work(self, row: JobRow, hold: Hold) -> JobRow:
        if row.verb in _WORKERS:
            return _WORKERS[row.verb](self._means(hold)).run(row)
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
        elif row.state is not State.DONE:
            row = self._give_up(row)
        return row

    def _give_up(self, row: JobRow) -> JobRow:
        """The target is in place: let the sources go, and be done. Any of it may have been done before."""
        for number, site in enumerate(self._sources):
            with site.catalog.reading() as snapshot:
                refuse_written(snapshot, row, number)
        for number, site in enumerate(self._sources):

            def let_go(number: int = number, site: Site = site) -> None:
                with site.catalog.writing() as txn:
                    give_up_sources(txn, row, number, site.runtime.clock.now())

            insist(self._target.runtime.tasks, let_go)
        return self._end()

    def _end(self) -> JobRow:
        with self._target.catalog.writing(f"job {self.control.job}") as txn:
            row = self.control.step(txn).released(State.DONE)
            txn.put_piece(row.to_piece())
        return row

    def _means(self, hold: Hold) -> Means:
        return Means(
            self._sources[0],
            self._target,
            self.control,
            self.window,
            self.gauge,
            hold,
            self._carrier,
            self._progress,
            self._changed,
        )

    def _move(self, row: JobRow, plans: Sequence[Plan], hold: Hold) -> None:
        self._done, self._total = row.bytes_before, row.bytes
        cargoes = [self._cargo(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        order = preferred(row)
        sieve = None
        if "deduplicate" in row.options:
            compared = self._compared(row, cargoes, plans)
            columns = columns_compared(row, self._target)
            sieve = sieve_of(columns, compared, self.control, self._target.runtime.tasks, self._progress)
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
        sifted: Sifted | None = None
        try:
            if "deduplicate" in row.options:
                sifted = self._sifted(carrier, row, plans)
            bundles = [
                Moving(
                    row.id,
                    self.control.owner,
                    hold.lease,
                    part.stream,
                    part.stage,
                    plan.schema_version,
                    tuple(each),
                    None if sifted is None else sifted.of(each),
                    part.store,
                )
                for part, plan in ((row.parts[number], plans[number]) for number in preferred(row))
                for each in bundled(plan.ranges)
            ]
            carrier(bundles)
        except Exception:
            self.control.look()  # what was asked to stop has not failed
            raise
        self.control.look()

    def _sifted(self, carrier: Carrier, row: JobRow, plans: Sequence[Plan]) -> Sifted:
        """Have the repeats found elsewhere too."""
        if not isinstance(carrier, Sifter):
            raise InvalidArgument("this carrier moves bytes, and can't find repeats: resume the job without it")
        cargoes = [self._cargo(part, plan) for part, plan in zip(row.parts, plans, strict=True)]
        compared = self._compared(row, cargoes, plans)
        sifted = sift(compared, columns_compared(row, self._target), carrier, self.control)
        self._note(sifted.repeats)
        return sifted

    def _compared(self, row: JobRow, cargoes: Sequence[Cargo], plans: Sequence[Plan]) -> list[Looked]:
        """What is looked at for repeats, in the order of preference."""
        sources = [Looked(cargoes[n], plans[n].ranges, moved=True, store=row.parts[n].store) for n in preferred(row)]
        return [*there_already(row, self._target), *sources]

    def _note(self, repeats: int) -> None:
        with self._target.catalog.writing(f"job {self.control.job}") as txn:
            txn.put_piece(replace(self.control.step(txn), repeats=repeats).to_piece())

    def _follow(self, row: JobRow, hold: Hold) -> JobRow:
        until = Until.from_json(row.options["follow"])
        return Follower(
            self._sources[0],
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
        return Cargo(self._sources[part.store], part.stream, schemas)

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
            elif not row.gives_up or row.options.get("within"):
                row = row.released(State.DONE)
            txn.put_piece(row.to_piece())
        self._changed()
        return row

    def _settle(self, state: State, error: str | None = None) -> JobRow:
        """Give the job up in some state, if it is still this run's."""

        def act() -> JobRow:
            with self._target.catalog.writing() as txn:
                return settle(txn, need_job(txn, self.control.job), state, error, owner=self.control.owner)

        with self._target.catalog.reading() as snapshot:
            names = files_of(snapshot, self.control.job) if state is State.CANCELLED else []
        row = insist(self._target.runtime.tasks, act)
        if row.state is State.CANCELLED:
            remove_files(self._target, row, names)
        return row


def settle(txn: Writing, row: JobRow, state: State, error: str | None = None, *, owner: str | None = None) -> JobRow:
    """Leave a job in some state; a cancelled one gives up what it wrote. Nothing is done where `owner` is given and is
    not the job's any more, or the job has ended."""
    if row.state.ended or (owner is not None and row.owner != owner):
        return row
    row = row.released(state, error)
    if state is State.CANCELLED and row.result is None:
        drop_stages(txn, row)
        drop_plans(txn, row)
        drop_members(txn, row)
        drop_files(txn, row)
    txn.put_piece(row.to_piece())
    return row
