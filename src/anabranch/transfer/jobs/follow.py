"""Keeping a copy up to date: new events go into the logs of the same segments, at the same offsets. When the source is
scaled, the copy is scaled into the same epochs.

The progress of the copy is the length of its segments: both change in the transaction that appends. The job's row
records how long they should be, so that another writer's events are noticed and never mistaken for the source's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.catalog.port import Writing
from anabranch.core.cuts import divide_evenly, truncated_error
from anabranch.errors import AppendUncertain
from anabranch.log.view import load
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import Segment, StreamView
from anabranch.streams.algebra.copy import schemas_of
from anabranch.streams.directory.find import need_view
from anabranch.streams.segments import close_segment, open_log
from anabranch.transfer.jobs.context import JobContext
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.follow_views import extend_view, foreign_write_error, verify_not_written
from anabranch.transfer.jobs.move import RangeMover
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import JobRange, JobRow, put_job

_LOOK_S: Final = 0.02  # how often to check whether the source has changed
_ASK_S: Final = 0.2  # how often to check whether another process wants the job to stop


class FollowRun:
    """One run of a job that follows its source."""

    def __init__(self, context: JobContext, row: JobRow) -> None:
        self._context = context
        self._control = context.control
        self._source, self._target = context.sources[0], context.target
        self._part = row.parts[0]
        self._until = Until.from_json(row.options["follow"])
        self._shared = bool(row.options.get("shared"))  # the copy views the source's bytes
        self._mover: tuple[int, RangeMover] | None = None
        self._lag = 0

    def run(self) -> JobRow:
        """Follow until the end condition is met, then end the job. Raises as `RangeMover.move`; Conflict if another
        process writes to the copy."""
        clock = self._target.runtime.clock
        began = last = clock.monotonic()
        while True:
            token = self._source.catalog.token()
            row = self._control.check_state()
            moved, ended = self._round(row)
            now = clock.monotonic()
            if moved:
                last = now
                self._context.changed()
            row = self._control.check_state()
            self._context.progress("follow", row.followed, row.followed + self._lag)
            if ended or self._until.reached(idle_s=now - last, ran_s=now - began, events=row.followed):
                return self._control.end(lambda _, row: replace(row, lag=self._lag), on=f"job {self._control.job}")
            if not moved:
                self._rest(token, last, began)
            elif self._shared:
                # A round costs a transaction however little is new, so pause to avoid slowing down a busy writer.
                self._target.runtime.tasks.sleep(_LOOK_S)

    def _rest(self, token: int, last: float, began: float) -> None:
        """Wait until the source has changed, the end condition is met, or the run is asked to stop."""
        clock = self._target.runtime.clock
        looked = clock.monotonic()
        while self._source.catalog.token() == token:
            now = clock.monotonic()
            if self._until.reached(idle_s=now - last, ran_s=now - began, events=-1) or self._control.stopping:
                return
            if now - looked >= _ASK_S:
                self._control.check_state()
                looked = now
            self._target.runtime.tasks.sleep(_LOOK_S)

    def _round(self, row: JobRow) -> tuple[bool, bool]:
        """One step: copy what is new, or apply the source's next epoch. Returns whether something was done, and whether
        the source has ended."""
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
                waiting = divide_evenly(waiting, max(self._until.events - row.followed, 0))
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
        """Act in one transaction; if its answer is lost, the next round sees whether it took effect."""
        try:
            with self._target.catalog.writing(on) as txn:
                act(txn)
        except AppendUncertain:
            self._target.runtime.tasks.sleep(_LOOK_S)

    def _view(self, txn: Writing, waiting: dict[SegmentId, int]) -> None:
        extend_view(txn, self._control.step(txn), self._part.stream, self._part.stage, waiting)

    def _move(self, copy: StreamView, waiting: dict[SegmentId, int]) -> None:
        mover = self._mover_for(copy)
        works = []
        for segment, count in waiting.items():
            last = copy.spans[segment][-1]
            length = copy.length(segment)
            range_ = JobRange(segment, last.offset - last.start, length + count, 0, last.log)
            works.append(lambda range_=range_: mover.move([range_]))
        self._context.run(works)

    def _mover_for(self, copy: StreamView) -> RangeMover:
        version = copy.info.schema_version
        if self._mover is None or self._mover[0] != version:
            range_reader = RangeReader.into(self._target, self._part.stage, version, self._source, self._part.stream)
            self._mover = (version, RangeMover(range_reader, self._target, self._part.stage, self._context.task()))
        return self._mover[1]

    def _evolve(self, source: StreamView) -> None:
        with self._source.catalog.reading() as reading:
            schemas = schemas_of(reading, source.info.id, source.info.schema_version)

        def act(txn: Writing) -> None:
            self._control.step(txn)
            info = need_view(txn, self._part.stage).info
            for version, schema in enumerate(schemas[info.schema_version :], info.schema_version + 1):
                info = replace(info, version=info.version + 1, schema=schema, schema_version=version)
                txn.update_stream(info)

        self._change(self._part.stage, act)

    def _scale(self, txn: Writing, source: StreamView) -> None:
        """Apply the source's next epoch. Everything before it has been copied."""
        row = self._control.step(txn)
        copy = need_view(txn, self._part.stage, unsealed=True)
        positions = dict(row.positions or {})
        epoch = copy.info.epoch + 1
        created = [segment for segment in source.ordered if segment.created == epoch]
        if not created:
            raise truncated_error(source)
        for segment in source.ordered:
            if segment.retired == epoch:
                mine = copy.segments[segment.id]
                verify_not_written(copy, positions, segment.id)
                positions.pop(str(copy.open_log(segment.id)), None)
                close_segment(txn, copy, mine)
                txn.put_segment(copy.info.id, replace(mine, retired=epoch))
        for segment in created:
            # Copied events bring their append times along. Viewed ones don't, so the new log starts at their last
            # append time.
            logs = [source.logs[span.log] for span in source.spans.get(segment.id, ()) if self._shared]
            appended_at = max((log.appended_at for log in logs), default=Micros(0))
            txn.put_segment(copy.info.id, Segment(segment.id, segment.range, None, segment.head))
            log = open_log(txn, copy.info.id, segment.id, segment.head, appended_at)
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
        put_job(txn, replace(row, positions=positions))


def open_positions(copy: StreamView) -> dict[str, int]:
    """The lengths of the open logs of a copy's current segments, as stored in a job's row."""
    logs = [log for segment in copy.current if (log := copy.open_log(segment.id)) is not None]
    return {str(log): copy.logs[log].length for log in logs}


def _waiting(source: StreamView, copy: StreamView) -> dict[SegmentId, int]:
    """The number of events still to be copied, by segment."""
    found = {}
    for segment in copy.current:
        if segment.id not in source.segments:
            raise truncated_error(source)
        missing = source.length(segment.id) - copy.length(segment.id)
        if missing < 0:
            raise foreign_write_error(copy.info.name)
        if missing:
            found[segment.id] = missing
    return found
