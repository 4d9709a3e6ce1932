"""Writes the rows of an input to a stream, waits for durability, and handles wrong rows."""

from __future__ import annotations

from collections import deque
from typing import Final, NoReturn

import pyarrow as pa

from anabranch import limits
from anabranch.cli.intake.batch import IntakeBatch
from anabranch.cli.intake.open import Intake
from anabranch.cli.intake.source import BadInput, IntakeSource
from anabranch.cli.intake.wrong_rows import first_invalid_row, reason_invalid
from anabranch.cli.output import counted
from anabranch.cli.progress import ProgressMeter
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import AnabranchError, InvalidArgument, TooLarge
from anabranch.model.schema import StreamSchema
from anabranch.store import Store
from anabranch.writing.acknowledgement import BatchAck
from anabranch.writing.writer import Writer

_FLUSH_S: Final = 1.0  # events from a pipe that never pauses are flushed this often


class RowDelivery:
    """One input written to one stream. `durable` counts the events that are durable."""

    def __init__(self, store: Store, source: IntakeSource, schema: StreamSchema, meter: ProgressMeter) -> None:
        self._clock = store.runtime.clock
        self._settings = store.runtime.settings
        self._times = store.runtime.settings.times
        self._source = source
        self._schema = schema
        self._meter = meter
        self._acks: deque[tuple[BatchAck, int]] = deque()
        self._flushed_at = self._clock.monotonic()
        self.durable = 0

    def write(self, intake: Intake, writer: Writer) -> None:
        """Writes while reading. All rows before a wrong one are written, then InvalidArgument says where it is."""
        try:
            for batch in intake.batches(self._schema):
                self._write(batch, writer)
                self._pause(writer)
            self._flush(writer)
        except BadInput as exc:
            self._flush(writer)
            raise InvalidArgument(f"{self._source.name}, {exc}; {self._before()}") from exc

    def gather(self, intake: Intake) -> pa.Table:
        """Reads everything. Raises InvalidArgument if a row is wrong, TooLarge beyond 1 GiB."""
        tables: list[pa.Table] = [self._schema.columns.empty_table()]
        size = 0
        try:
            for batch in intake.batches(self._schema):
                row = first_invalid_row(batch.rows, self._schema, self._settings.large_event_bytes_max, self._times)
                if row is not None:
                    self._refuse(batch, row)
                tables.append(to_stored_table(batch.rows, self._schema, self._times))
                size += tables[-1].nbytes
                if size > limits.BATCH_BYTES_MAX:
                    raise TooLarge("an atomic batch", size, limits.BATCH_BYTES_MAX)
                self._show(0)
        except BadInput as exc:
            raise InvalidArgument(f"{self._source.name}, {exc}; nothing is written") from exc
        return pa.concat_tables(tables)

    def write_whole(self, rows: pa.Table, writer: Writer) -> None:
        """Writes all rows as one atomic unit."""
        if rows.num_rows:
            writer.write_batch(rows, atomic=True).result()
        self.durable = rows.num_rows

    def _write(self, batch: IntakeBatch, writer: Writer) -> None:
        try:
            self._give(batch.rows, writer)
        except InvalidArgument:  # refused as a whole: find the row
            row = first_invalid_row(batch.rows, self._schema, self._settings.large_event_bytes_max, self._times)
            if row is None:
                raise
            if row:
                self._give(batch.rows.slice(0, row), writer)
            self._refuse(batch, row)

    def _refuse(self, batch: IntakeBatch, row: int) -> NoReturn:
        why = reason_invalid(batch.rows.slice(row, 1), self._schema, self._settings.large_event_bytes_max, self._times)
        raise BadInput(batch.place(row), str(why))

    def _give(self, rows: pa.Table, writer: Writer) -> None:
        self._acks.append((writer.write_batch(rows), rows.num_rows))

    def _pause(self, writer: Writer) -> None:
        """Count what has become durable; if the pipe pauses, or has not paused for long, wait until all is."""
        now = self._clock.monotonic()
        if self._source.waits and (self._source.idle() or now - self._flushed_at > _FLUSH_S):
            self._flush(writer)
        self._settle()
        self._show(self.durable)

    def _flush(self, writer: Writer) -> None:
        try:
            writer.flush()
        except AnabranchError as exc:
            self._settle()
            raise AnabranchError(f"{exc}; {counted(self.durable, 'event')} written") from exc
        self._flushed_at = self._clock.monotonic()
        self._settle()

    def _settle(self) -> None:
        while self._acks and self._acks[0][0].done():
            ack, count = self._acks.popleft()
            try:
                ack.result()
            except AnabranchError:
                continue  # flush reports it
            self.durable += count

    def _show(self, events: int) -> None:
        self._meter.show(counted(events, "event"), self._source.done, self._source.size)

    def _before(self) -> str:
        if not self.durable:
            return "nothing is written"
        if self.durable == 1:
            return "the event before it is written, and nothing after it"
        return f"the {self.durable:,} events before it are written, and nothing after it"
