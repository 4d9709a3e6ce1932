"""One file, or a pipe, appended to a stream that may have to be created first."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from anabranch.cli.formats import FileFormat
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.open import Intake, open_intake
from anabranch.cli.intake.source import BadInput, IntakeSource
from anabranch.cli.intake.times import TimeReading, as_times, require_time_options
from anabranch.cli.options import open_catalog, open_store, settings
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.rejects import Rejects
from anabranch.cli.write_rows import RowDelivery
from anabranch.core.schema_text import parse_schema
from anabranch.errors import AnabranchError, InvalidArgument, ScopeNotFound, StoreNotFound, StreamNotFound
from anabranch.errors.names import with_advice
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import RAW, StreamSchema
from anabranch.runtime.clock import SystemClock
from anabranch.store import Store
from anabranch.store.row_writer import RowWriter, check_roles

__all__ = ["FileWrite", "NewStream", "Written"]


class NewStream(NamedTuple):
    """The options for a stream that is to be created."""

    key: str | None
    time: str | None
    schema: str | None
    segments: int

    def schema_of(self, intake: Intake, times: TimeReading, *, skip_bad: bool) -> StreamSchema:
        """Returns the stream's schema: the given one, or the one inferred from the input; see `Intake.schema`."""
        columns = intake.schema(skip_bad=skip_bad) if self.schema is None else parse_schema(self.schema)
        if columns is None:
            if self.key is not None or self.time is not None:
                raise InvalidArgument("plain lines have no columns that --key and --time could name")
            return RAW
        if self.schema is None:
            columns = as_times(columns, self.time, times)
            require_time_options(columns, self.time)
        return StreamSchema.typed(columns, self.key, self.time)


class Written(NamedTuple):
    """What a write did. `tail` is the cut behind the last event; None if there is no stream."""

    rows: RowWriter
    rejects: Rejects
    seconds: float
    tail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWrite:
    """The options of `anabranch write`. A `file` of None is stdin; see the command for the others."""

    stream: str
    file: Path | None
    form: FileFormat | None
    delimiter: str | None
    times: TimeReading
    create: bool
    new: NewStream
    add_columns: bool
    reject_file: Path | None
    skip_errors: int | None
    atomic: bool

    def run(self) -> Written:
        """Append all events of the file, and return once they are durable. Raises InvalidArgument for one bad row too
        many, with its line; see the command for what is written then."""
        name = StreamName.parse(self.stream)
        with ExitStack() as stack:
            source = stack.enter_context(IntakeSource(self.file))
            opened = _open_if_there(create=self.create)
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
                scaling=Fixed(self.new.segments),
                make_store=make_store,
            )
            present = self._check_target(opened, name, rows.present)
            rejects = stack.enter_context(Rejects(self.reject_file, self.skip_errors))
            meter = stack.enter_context(ProgressMeter(f"writing {self.stream}", total=source.size))
            try:
                intake = open_intake(
                    source, self.form, present=present, delimiter=self.delimiter, now=clock.now, times=self.times
                )
                columns = TargetColumns(present or self._new_schema(intake), grow=self.add_columns)
            except BadInput as exc:
                raise InvalidArgument(f"{source.name}, {exc}; nothing is written") from exc
            with rows:
                delivery = RowDelivery(source, rows, columns, rejects, meter, clock)
                (delivery.write_whole if self.atomic else delivery.write)(intake)
            tail = None if opened is None or not (rows.created or present) else str(opened.cuts.tail(name))
        return Written(rows, rejects, clock.monotonic() - began, tail)

    def _check_target(
        self, opened: Store | None, name: StreamName, present: StreamSchema | None
    ) -> StreamSchema | None:
        if present is not None:
            check_roles(name, present, self.new.key, self.new.time)
        elif opened is not None and not self.create:
            raise _not_found(opened, name)
        return present

    def _new_schema(self, intake: Intake) -> StreamSchema:
        skip_bad = self.reject_file is not None or bool(self.skip_errors)
        return self.new.schema_of(intake, self.times, skip_bad=skip_bad)


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
