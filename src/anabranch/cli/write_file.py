"""One file, or a pipe, appended to a stream that may have to be created first."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.cli.input_options import InputOptions
from anabranch.cli.intake.batch import BadRow, IntakeBatch
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.open import Intake, open_intake
from anabranch.cli.intake.source import BadInput, IntakeSource
from anabranch.cli.intake.times import TimeReading, as_times, require_time_options
from anabranch.cli.options import open_catalog, open_store, settings, time_rules
from anabranch.cli.output import counted
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.rejects import Rejects
from anabranch.core.schema_text import parse_schema
from anabranch.errors import AnabranchError, InvalidArgument, ScopeNotFound, StoreNotFound, StreamNotFound
from anabranch.errors.names import with_advice
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import RAW, StreamSchema
from anabranch.runtime.clock import Clock, SystemClock
from anabranch.store import Store
from anabranch.store.row_writer import RowWriter, check_roles
from anabranch.writing.invalid_rows import InvalidRow

_FLUSH_S: Final = 1.0  # events from a pipe that never pauses are flushed this often


class Written(NamedTuple):
    """What a write did. `tail` is the cut behind the last event; None if there is no stream."""

    rows: RowWriter
    rejects: Rejects
    seconds: float
    tail: str | None


def write_file(stream: str, options: InputOptions) -> Written:
    """Append all events of the file, and return once they are durable. Raises InvalidArgument for one bad row too many,
    with its line; see `anabranch write` for what is written then."""
    name = StreamName.parse(stream)
    times = TimeReading(time_rules(), options.time_unit, options.time_format)
    with ExitStack() as stack:
        source = stack.enter_context(IntakeSource(None if options.file == "-" else Path(options.file)))
        opened = _open_if_there(create=options.create)
        if opened is not None:
            stack.enter_context(opened)

        def make_store() -> Store:
            nonlocal opened
            opened = stack.enter_context(open_store(create=True))
            return opened

        clock = SystemClock() if opened is None else opened.runtime.clock
        began = clock.monotonic()
        rows = RowWriter(
            opened,
            name,
            settings=settings() if opened is None else opened.runtime.settings,
            scaling=Fixed(options.segments),
            make_store=make_store,
        )
        present = rows.present
        if present is not None:
            check_roles(name, present, options.key, options.time)
        elif opened is not None and not options.create:
            raise _not_found(opened, name)
        rejects = stack.enter_context(Rejects(options.reject_file, options.skip_errors))
        meter = stack.enter_context(ProgressMeter(f"writing {stream}", total=source.size))
        try:
            intake = open_intake(
                source, options.form, present=present, delimiter=options.delimiter, now=clock.now, times=times
            )
            columns = TargetColumns(present or _new_schema(intake, options, times), grow=options.add_columns)
        except BadInput as exc:
            raise InvalidArgument(f"{source.name}, {exc}; nothing is written") from exc
        with rows:
            delivery = RowDelivery(source, rows, columns, rejects, meter, clock)
            (delivery.write_whole if options.atomic else delivery.write)(intake)
        tail = None if opened is None or not (rows.created or present) else str(opened.cuts.tail(name))
    return Written(rows, rejects, clock.monotonic() - began, tail)


def _new_schema(intake: Intake, options: InputOptions, times: TimeReading) -> StreamSchema:
    """Returns the schema of a stream that is to be created: that of --schema, or the one inferred from the input."""
    if options.schema is not None:
        columns: pa.Schema | None = parse_schema(options.schema)
    else:
        columns = intake.schema(skip_bad=options.reject_file is not None or bool(options.skip_errors))
    if columns is None:
        if options.key is not None or options.time is not None:
            raise InvalidArgument("plain lines have no columns that --key and --time could name")
        return RAW
    if options.schema is None:
        columns = as_times(columns, options.time, times)
        require_time_options(columns, options.time)
    return StreamSchema.typed(columns, options.key, options.time)


def _open_if_there(*, create: bool) -> Store | None:
    """Opens the store; None if there is none yet and it may be created."""
    try:
        return open_store()
    except StoreNotFound:
        if not create:
            raise
    try:
        with open_catalog():
            pass
    except StoreNotFound:
        return None
    return open_store(create=True)  # a catalog whose blobs have no folder yet


def _not_found(store: Store, name: StreamName) -> AnabranchError:
    try:
        store.streams.get(name)
    except (ScopeNotFound, StreamNotFound) as exc:
        problem = exc.problem if isinstance(exc, ScopeNotFound) else str(exc)
        return InvalidArgument(with_advice(problem, "to create the stream, pass --create"))
    return StreamNotFound(str(name))


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
                    self._rows.write(item.rows, self._columns.schema, partial(self._reject, item))
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
                    self._rows.hold(item.rows, self._columns.schema, partial(self._reject, item))
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
