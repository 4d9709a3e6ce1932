"""Writes the rows of an input to a stream, waits for durability, and says how far it came when a row is bad."""

from __future__ import annotations

from typing import Final

from anabranch.cli.intake.batch import BadRow, IntakeBatch
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.open import Intake
from anabranch.cli.intake.source import BadInput, IntakeSource
from anabranch.cli.output import counted
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.rejects import Rejects
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.runtime.clock import Clock
from anabranch.store.row_writer import RowWriter
from anabranch.writing.invalid_rows import InvalidRow

_FLUSH_S: Final = 1.0  # events from a pipe that never pauses are flushed this often


class RowDelivery:
    """One input written to one stream."""

    def __init__(
        self,
        source: IntakeSource,
        rows: RowWriter,
        columns: TargetColumns,
        rejects: Rejects,
        meter: ProgressMeter,
        clock: Clock,
    ) -> None:
        self._source = source
        self._rows = rows
        self._columns = columns
        self._rejects = rejects
        self._meter = meter
        self._clock = clock
        self._flushed_at = clock.monotonic()

    def write(self, intake: Intake) -> None:
        """Writes while reading. All rows before one that is one bad row too many are written, then InvalidArgument says
        where it is. A stream that is to be created is created, unless there are only bad rows."""
        try:
            for item in intake.batches(self._columns):
                if isinstance(item, BadRow):
                    self._rejects.add(item)
                else:
                    self._rows.write(item.rows, self._columns.schema, lambda bad, batch=item: self._reject(batch, bad))  # type: ignore[misc]
                    self._pause()
            if not self._rejects.count:
                self._rows.open(self._columns.schema)
            self._flush()
        except BadInput as exc:
            self._flush()
            raise InvalidArgument(f"{self._source.name}, {exc}; {self._before()}") from exc

    def write_whole(self, intake: Intake) -> None:
        """Reads everything, then writes it as one atomic unit. Raises InvalidArgument for one bad row too many,
        TooLarge beyond 1 GiB."""
        try:
            for item in intake.batches(self._columns):
                if isinstance(item, BadRow):
                    self._rejects.add(item)
                else:
                    self._rows.hold(item.rows, self._columns.schema, lambda bad, batch=item: self._reject(batch, bad))  # type: ignore[misc]
                    self._show(0)
        except BadInput as exc:
            raise InvalidArgument(f"{self._source.name}, {exc}; nothing is written") from exc
        self._rows.write_held(self._columns.schema)
        if not self._rejects.count:
            self._rows.open(self._columns.schema)

    def _reject(self, batch: IntakeBatch, bad: InvalidRow) -> None:
        self._rejects.add(batch.bad_row(bad.row, bad.error))

    def _pause(self) -> None:
        """Count what has become durable; if the pipe pauses, or has not paused for long, wait until all is."""
        now = self._clock.monotonic()
        if self._source.waits and (self._source.idle() or now - self._flushed_at > _FLUSH_S):
            self._flush()
        self._rows.settle()
        self._show(self._rows.durable)

    def _flush(self) -> None:
        try:
            self._rows.flush()
        except AnabranchError as exc:
            raise AnabranchError(f"{exc}; {counted(self._rows.durable, 'event')} written") from exc
        self._flushed_at = self._clock.monotonic()

    def _show(self, events: int) -> None:
        self._meter.show(counted(events, "event"), self._source.done, self._source.size)

    def _before(self) -> str:
        durable = self._rows.durable
        if not durable:
            return "nothing is written"
        if durable == 1:
            return "the event before it is written, and nothing after it"
        return f"the {durable:,} events before it are written, and nothing after it"
