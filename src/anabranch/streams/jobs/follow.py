"""Keeping a copy up to date: new events go into the logs of the same segments, at the same offsets; when the source is
scaled, so is the copy, into the same epochs.

How far it has come is how long the copy's segments are: both move in the transaction that appends. The job's row says
how long they are to be, so that a foreign writer is noticed and never taken for the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.catalog.port import Writing
from anabranch.core.cuts import share, truncated
from anabranch.errors import AppendUncertain
from anabranch.log.lease import Hold
from anabranch.log.view import load
from anabranch.log.watch import Watch
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import Segment, Span, StreamView
from anabranch.streams.find import need_view
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.gauge import Gauge
from anabranch.streams.jobs.move import Mover
from anabranch.streams.jobs.row import JobRow, Part, Range, State
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.until import Until
from anabranch.streams.jobs.view_on import foreign, verify_own, view_on
from anabranch.streams.jobs.window import Window
from anabranch.streams.scale import close_segment

_LOOK_S: Final = 0.02  # whether the source has changed
_ASK_S: Final = 0.2  # whether another process wants it to stop


class Follower:
    """One run of a job that follows its source; `shared` where the copy views the source's bytes."""

    def __init__(
        self,
        source: Site,
        target: Site,
        part: Part,
        until: Until,
        *,
        shared: bool,
        control: Control,
        window: Window,
        hold: Hold,
        gauge: Gauge,
        progress: Watch,
        changed: Callable[[], None],
    ) -> None:
        self._source = source
        self._target = target
        self._part = part
        self._until = until
        self._shared = shared
        self._control = control
        self._window = window
        self._hold = hold
        self._gauge = gauge
        self._progress = progress
        self._changed = changed
        self._mover: tuple[int, Mover] | None = None
        self._lag = 0

    def run(self) -> JobRow:
        """Follow until that is over; the job is done then. Raises as `Mover.move`; Conflict where somebody else writes to
        the copy."""
        clock = self._target.runtime.clock
        began = last = clock.monotonic()
        while True:
            token = self._source.catalog.token()
            row = self._control.look()
            moved, ended = self._round(row)
            now = clock.monotonic()
            if moved:
                last = now
                self._changed()
            row = self._control.look()
            self._progress("follow", row.followed, row.followed + self._lag)
            if ended or self._until.reached(idle_s=now - last, ran_s=now - began, events=row.followed):
                return self._end()
            if not moved:
                self._rest(token, last, began)
            elif self._shared:
                # A round costs a transaction however little is new: whoever writes a lot is not held up for each bit.
                self._target.runtime.tasks.sleep(_LOOK_S)

    def _rest(self, token: int, last: float, began: float) -> None:
        """Wait until the source has changed, it is over, or it is to stop."""
        clock = self._target.runtime.clock
        looked = clock.monotonic()
        while self._source.catalog.token() == token:
            now = clock.monotonic()
            if self._until.reached(idle_s=now - last, ran_s=now - began, events=-1) or self._control.stopping:
                return
            if now - looked >= _ASK_S:
                self._control.look()
                looked = now
            self._target.runtime.tasks.sleep(_LOOK_S)

    def _round(self, row: JobRow) -> tuple[bool, bool]:
        """One step: copy what is new, or take over the source's next epoch. Whether something was done, and whether
        there is nothing to follow any more."""
        with self._source.catalog.reading() as reading:
            source = load(reading, self._part.stream)
        with self._target.catalog.reading() as reading:
            copy = load(reading, self._part.stage)
        if source.info.schema_version > copy.info.schema_version:
            self._evolve(source)
            return True, False
        waiting = _waiting(source, copy)
        self._lag = sum(waiting.values())
        if waiting:
            if self._until.events is not None:
                waiting = share(waiting, max(self._until.events - row.followed, 0))
            self._take(copy, {segment: count for segment, count in waiting.items() if count})
            return True, False
        if source.info.epoch > copy.info.epoch:
            self._change(self._part.stage, lambda txn: self._scale(txn, source))
            return True, False
        return False, source.info.sealed

    def _take(self, copy: StreamView, waiting: dict[SegmentId, int]) -> None:
        self._control.lag = self._lag
        if self._shared:
            self._change(None, lambda txn: self._view(txn, waiting))
        else:
            self._move(copy, waiting)
        self._lag -= sum(waiting.values())

    def _change(self, on: StreamId | None, act: Callable[[Writing], object]) -> None:
        """Act in one transaction; what became of one whose answer was lost, the next look tells."""
        try:
            with self._target.catalog.writing(on) as txn:
                act(txn)
        except AppendUncertain:
            self._target.runtime.tasks.sleep(_LOOK_S)

    def _view(self, txn: Writing, waiting: dict[SegmentId, int]) -> None:
        view_on(txn, self._control.step(txn), self._part.stream, self._part.stage, waiting)

    def _move(self, copy: StreamView, waiting: dict[SegmentId, int]) -> None:
        mover = self._mover_for(copy)
        works = []
        for segment, count in waiting.items():
            last = copy.spans[segment][-1]
            length = copy.length(segment)
            range_ = Range(segment, last.offset - last.start, length + count, 0, last.log)
            works.append(lambda range_=range_: mover.move([range_]))
        self._window.run(works, interrupted=lambda: self._control.stop(State.PAUSED))

    def _mover_for(self, copy: StreamView) -> Mover:
        version = copy.info.schema_version
        if self._mover is None or self._mover[0] != version:
            with self._target.catalog.reading() as reading:
                schemas = [reading.schema(self._part.stage, number) for number in range(1, version + 1)]
            cargo = Cargo(self._source, self._part.stream, schemas)
            mover = Mover(
                cargo,
                self._target,
                self._part.stage,
                self._control,
                self._hold,
                self._gauge,
                lambda _events, _size: None,
            )
            self._mover = (version, mover)
        return self._mover[1]

    def _evolve(self, source: StreamView) -> None:
        with self._source.catalog.reading() as reading:
            versions = range(1, source.info.schema_version + 1)
            schemas = [reading.schema(source.info.id, version) for version in versions]

        def act(txn: Writing) -> None:
            self._control.step(txn)
            info = need_view(txn, self._part.stage).info
            for version in versions[info.schema_version :]:
                info = replace(info, version=info.version + 1, schema=schemas[version - 1], schema_version=version)
                txn.update_stream(info)

        self._change(self._part.stage, act)

    def _scale(self, txn: Writing, source: StreamView) -> None:
        """Take over the source's next epoch. All that precedes it has been copied."""
        row = self._control.step(txn)
        copy = need_view(txn, self._part.stage, unsealed=True)
        positions = dict(row.positions or {})
        epoch = copy.info.epoch + 1
        created = [segment for segment in source.ordered if segment.created == epoch]
        if not created:
            raise truncated(source)
        for segment in source.ordered:
            if segment.retired == epoch:
                mine = copy.segments[segment.id]
                verify_own(copy, positions, segment.id)
                positions.pop(str(copy.open_log(segment.id)), None)
                close_segment(txn, copy, mine)
                txn.put_segment(copy.info.id, replace(mine, retired=epoch))
        for segment in created:
            # What is copied brings its append times along; behind what is viewed there is nothing that does.
            logs = [source.logs[span.log] for span in source.spans.get(segment.id, ()) if self._shared]
            appended_at = max((log.appended_at for log in logs), default=Micros(0))
            log = txn.new_log(copy.info.id, appended_at=appended_at)
            txn.put_segment(copy.info.id, Segment(segment.id, segment.range, None, segment.head))
            txn.put_span(copy.info.id, Span(segment.id, segment.head, log, 0, None))
            positions[str(log)] = 0
        number = max(copy.info.next_number, *(segment.id.number + 1 for segment in created))
        txn.update_stream(replace(copy.info, version=copy.info.version + 1, epoch=epoch, next_number=number))
        now = self._target.runtime.clock.now()
        detail = {
            "epoch": epoch,
            "sealed": [str(each.id) for each in source.ordered if each.retired == epoch],
            "created": [str(each.id) for each in created],
            "segments": len(source.at_epoch(epoch)),
        }
        txn.add_change(copy.info.id, "scaled", detail, now=now)
        txn.put_piece(replace(row, positions=positions).to_piece())

    def _end(self) -> JobRow:
        with self._target.catalog.writing(f"job {self._control.job}") as txn:
            row = replace(self._control.step(txn).released(State.DONE), lag=self._lag)
            txn.put_piece(row.to_piece())
        return row


def open_positions(copy: StreamView) -> dict[str, int]:
    """How long the logs are that a copy's current segments follow, as a job's row keeps it."""
    logs = [log for segment in copy.current if (log := copy.open_log(segment.id)) is not None]
    return {str(log): copy.logs[log].length for log in logs}


def _waiting(source: StreamView, copy: StreamView) -> dict[SegmentId, int]:
    """How many events of each segment of the copy are still to be copied."""
    found = {}
    for segment in copy.current:
        if segment.id not in source.segments:
            raise truncated(source)
        missing = source.length(segment.id) - copy.length(segment.id)
        if missing < 0:
            raise foreign(copy)
        if missing:
            found[segment.id] = missing
    return found
