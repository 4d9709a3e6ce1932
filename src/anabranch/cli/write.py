"""`anabranch write`: append events from files and pipes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from anabranch.cli.formats import FileFormat, TimeUnit
from anabranch.cli.options import (
    JsonOption,
    StoreOption,
    StreamArgument,
    invocation,
    new_app,
    open_catalog,
    open_store,
    settings,
    time_rules,
)
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import AnabranchError, InvalidArgument, ScopeNotFound, StoreNotFound, StreamNotFound
from anabranch.errors.names import with_advice

if TYPE_CHECKING:
    from anabranch.cli.intake.open import Intake
    from anabranch.cli.intake.times import TimeReading
    from anabranch.cli.rejects import Rejects
    from anabranch.model.names import StreamName
    from anabranch.model.schema import StreamSchema
    from anabranch.store import Store
    from anabranch.store.row_writer import RowWriter

app = new_app()

_RATED_EVENTS_MIN: Final = 10_000


@app.command()
def write(
    stream: StreamArgument,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="A file; - or nothing is stdin.")] = "-",
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's ending, else what the stream takes.")
    ] = None,
    create: Annotated[
        bool,
        typer.Option("--create", help="Create the stream if it does not exist, with the columns found; the store too."),
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="For a new stream: the routing key.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="For a new stream: the event time.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="TEXT", help="For a new stream: its columns, as in stream create.")
    ] = None,
    segments: Annotated[int, typer.Option("--segments", metavar="N", help="For a new stream: its segments.")] = 1,
    time_unit: Annotated[
        TimeUnit | None,
        typer.Option("--time-unit", help="What times that are numbers count since 1970; default: µs, where plausible."),
    ] = None,
    time_format: Annotated[
        str | None,
        typer.Option("--time-format", metavar="FORMAT", help="How the event time is written, as '%d.%m.%Y %H:%M'."),
    ] = None,
    truncate_times: Annotated[
        bool, typer.Option("--truncate-times", help="Cut digits beyond µs off times, which are refused otherwise.")
    ] = False,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            metavar="C",
            help="Between the fields of CSV; default: a comma; \\t: a tab, as in .tsv files.",
        ),
    ] = None,
    add_columns: Annotated[
        bool, typer.Option("--add-columns", help="Add columns that only the input has to the stream.")
    ] = False,
    reject_file: Annotated[
        Path | None,
        typer.Option("--reject-file", metavar="FILE", help="Record bad rows in this new file, and write all others."),
    ] = None,
    skip_errors: Annotated[
        int | None,
        typer.Option("--skip-errors", metavar="N", min=0, help="Skip up to N bad rows; one more is an error."),
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="All of the file at once or nothing of it; it must fit into 1 GiB.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Append the events of a file or a pipe.

    The input is JSON lines, CSV with a header, Parquet, Arrow, or plain lines; a file may be compressed as .gz. A
    stream that does not exist is created with --create, with the columns found in the first 4 MiB; plain lines make a
    raw stream. Its scope and the store are created too.
    Times are ISO 8601, or numbers: integers of µs since 1970 that lie between 1980 and 2200, or of the unit that
    --time-unit says. Times without a zone are in UTC, which is reported on stderr, or in that of --time-zone. Data from a
    pipe is durable as soon as the pipe pauses.

    A bad row ends the command with its line and the reason: all events before it are written, and nothing after it.
    With --atomic nothing is written at all. If no event is written, no stream, scope or store is left that --create has
    made. Up to --skip-errors bad rows are skipped and counted instead. A --reject-file gets each bad row as a line of
    JSON, with line, reason and text; without --skip-errors there may be any number of them, and the exit code is then 1.

    Examples:

      anabranch write iot/sensors measurements.csv --create --key device --time at
      anabranch write iot/sensors more.parquet --atomic
      anabranch write iot/sensors newer.jsonl --add-columns
      anabranch write iot/sensors dirty.csv --reject-file bad.jsonl
      anabranch write iot/sensors epochs.jsonl --time at --time-unit ms
      anabranch write iot/sensors export.csv --time-format '%d.%m.%Y %H:%M'
      tail -f app.log | anabranch write logs/app - --create
    """
    from anabranch.cli.intake.columns import TargetColumns
    from anabranch.cli.intake.open import open_intake
    from anabranch.cli.intake.source import BadInput, IntakeSource
    from anabranch.cli.intake.times import TimeReading
    from anabranch.cli.rejects import Rejects
    from anabranch.cli.write_rows import RowDelivery
    from anabranch.model.names import StreamName
    from anabranch.model.policy import Fixed
    from anabranch.runtime.clock import SystemClock
    from anabranch.store.row_writer import RowWriter, check_roles

    name = StreamName.parse(stream)
    invocation.truncate_times = truncate_times
    times = TimeReading(time_rules(), time_unit, time_format)
    new = _New(key, time, schema, times)
    with ExitStack() as stack:
        source = stack.enter_context(IntakeSource(None if file == "-" else Path(file)))
        opened = _open_if_there(store, create=create)
        if opened is not None:
            stack.enter_context(opened)

        def make_store() -> Store:
            nonlocal opened
            opened = stack.enter_context(open_store(store, create=True))
            return opened

        clock = SystemClock() if opened is None else opened.runtime.clock
        began = clock.monotonic()
        rows = RowWriter(
            opened,
            name,
            settings=settings() if opened is None else opened.runtime.settings,
            scaling=Fixed(segments),
            make_store=make_store,
        )
        present = rows.present
        if present is None and opened is not None and not create:
            raise _not_found(opened, name)
        if present is not None:
            check_roles(name, present, key, time)
        rejects = stack.enter_context(Rejects(reject_file, skip_errors))
        meter = stack.enter_context(ProgressMeter(f"writing {stream}", total=source.size))
        try:
            intake = open_intake(source, form, present=present, delimiter=delimiter, now=clock.now, times=times)
            skip_bad = reject_file is not None or bool(skip_errors)
            columns = TargetColumns(present or new.schema_of(intake, skip_bad=skip_bad), grow=add_columns)
        except BadInput as exc:
            raise InvalidArgument(f"{source.name}, {exc}; nothing is written") from exc
        with rows:
            delivery = RowDelivery(source, rows, columns, rejects, meter, clock)
            (delivery.write_whole if atomic else delivery.write)(intake)
        tail = None if opened is None or not (rows.created or present) else str(opened.cuts.tail(name))
    _report(stream, rows, rejects, seconds=clock.monotonic() - began, tail=tail, as_json=as_json)
    if rejects.count and skip_errors is None:
        raise typer.Exit(1)


def _open_if_there(option: str | None, *, create: bool) -> Store | None:
    """Opens the store; None if there is none yet and it may be created."""
    try:
        return open_store(option)
    except StoreNotFound:
        if not create:
            raise
    try:
        with open_catalog(option):
            pass
    except StoreNotFound:
        return None
    return open_store(option, create=True)  # a catalog whose blobs have no folder yet


def _report(stream: str, rows: RowWriter, rejects: Rejects, *, seconds: float, tail: str | None, as_json: bool) -> None:
    if as_json:
        result = {"stream": stream, "events": rows.durable, "rejected": rejects.count, "created": rows.created}
        print_json({**result, "added": rows.added, "seconds": round(seconds, 3), "tail": tail})
        return
    remark = ", which is new" if rows.created else f", with new columns: {', '.join(rows.added)}" if rows.added else ""
    bad = ""
    if rejects.count:
        where = f"; see {rejects.path}" if rejects.path is not None else ""
        bad = f"; {counted(rejects.count, 'bad row')} skipped{where}"
    # For a few events the rate would mostly measure how fast the program starts.
    rate = f" ({rows.durable / seconds:,.0f}/s)" if rows.durable >= _RATED_EVENTS_MIN else ""
    print_note(f"{counted(rows.durable, 'event')} written to '{stream}'{remark}, in {seconds:.1f} s{rate}{bad}")


class _New(NamedTuple):
    """The options for a stream that is to be created."""

    key: str | None
    time: str | None
    schema: str | None
    times: TimeReading

    def schema_of(self, intake: Intake, *, skip_bad: bool) -> StreamSchema:
        """Returns the stream's schema: the given one, or the one inferred from the input; see `Intake.schema`."""
        from anabranch.cli.intake.times import as_times
        from anabranch.core.schema_text import parse_schema
        from anabranch.model.schema import RAW, StreamSchema

        columns = intake.schema(skip_bad=skip_bad) if self.schema is None else parse_schema(self.schema)
        if columns is None:
            if self.key is not None or self.time is not None:
                raise InvalidArgument("plain lines have no columns that --key and --time could name")
            return RAW
        if self.schema is None:
            columns = as_times(columns, self.time, self.times)
        return StreamSchema.typed(columns, self.key, self.time)


def _not_found(store: Store, name: StreamName) -> AnabranchError:
    try:
        store.streams.get(name)
    except (ScopeNotFound, StreamNotFound) as exc:
        problem = exc.problem if isinstance(exc, ScopeNotFound) else str(exc)
        return InvalidArgument(with_advice(problem, "to create the stream, pass --create"))
    return StreamNotFound(str(name))
