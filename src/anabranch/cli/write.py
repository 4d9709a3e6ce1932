"""`anabranch write`: append events from files and pipes."""

from __future__ import annotations

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
    open_store,
    time_rules,
)
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import AnabranchError, InvalidArgument, ScopeNotFound, StreamNotFound
from anabranch.errors.names import with_advice

if TYPE_CHECKING:
    from anabranch.cli.intake.open import Intake
    from anabranch.cli.intake.times import TimeReading
    from anabranch.model.names import StreamName
    from anabranch.model.schema import StreamSchema
    from anabranch.store import Store

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

    A wrong line ends the command with its number and the reason: all events before it are written, and nothing after
    it. With --atomic nothing is written at all.

    Examples:

      anabranch write iot/sensors measurements.csv --create --key device --time at
      anabranch write iot/sensors more.parquet --atomic
      anabranch write iot/sensors epochs.jsonl --time at --time-unit ms
      anabranch write iot/sensors export.csv --time-format '%d.%m.%Y %H:%M'
      tail -f app.log | anabranch write logs/app - --create
    """
    from anabranch.cli.intake.open import open_intake
    from anabranch.cli.intake.source import BadInput, IntakeSource
    from anabranch.cli.intake.times import TimeReading
    from anabranch.cli.write_rows import RowDelivery
    from anabranch.model.names import StreamName

    name = StreamName.parse(stream)
    invocation.truncate_times = truncate_times
    times = TimeReading(time_rules(), time_unit, time_format)
    new = _New(key, time, schema, segments, times)
    with IntakeSource(None if file == "-" else Path(file)) as source, open_store(store, create=create) as opened:
        began = opened.runtime.clock.monotonic()
        found = opened.streams.find(name)
        present = None if found is None else found.schema
        if present is None and not create:
            raise _not_found(opened, name)
        with ProgressMeter(f"writing {stream}", total=source.size) as meter:
            try:
                intake = open_intake(
                    source, form, present=present, delimiter=delimiter, now=opened.runtime.clock.now, times=times
                )
                columns = _check_roles(stream, present, key, time) if present else new.schema_of(intake)
            except BadInput as exc:
                raise InvalidArgument(f"{source.name}, {exc}; nothing is written") from exc
            delivery = RowDelivery(opened, source, columns, meter)
            rows = delivery.gather(intake) if atomic else None
            if present is None:
                _create(opened, name, columns, segments)
            with opened.writer(name) as writer:
                if rows is None:
                    delivery.write(intake, writer)
                else:
                    delivery.write_whole(rows, writer)
        seconds = opened.runtime.clock.monotonic() - began
        if as_json:
            result = {"stream": stream, "events": delivery.durable, "created": present is None}
            print_json({**result, "seconds": round(seconds, 3), "tail": str(opened.cuts.tail(name))})
            return
    remark = ", which is new" if present is None else ""
    # For a few events the rate would mostly measure how fast the program starts.
    rate = f" ({delivery.durable / seconds:,.0f}/s)" if delivery.durable >= _RATED_EVENTS_MIN else ""
    print_note(f"{counted(delivery.durable, 'event')} written to '{stream}'{remark}, in {seconds:.1f} s{rate}")


class _New(NamedTuple):
    """The options for a stream that is to be created."""

    key: str | None
    time: str | None
    schema: str | None
    segments: int
    times: TimeReading

    def schema_of(self, intake: Intake) -> StreamSchema:
        """Returns the stream's schema: the given one, or the one inferred from the input."""
        from anabranch.cli.intake.times import as_times
        from anabranch.cli.schema_text import parse_schema
        from anabranch.model.schema import RAW, StreamSchema

        columns = intake.schema() if self.schema is None else parse_schema(self.schema)
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


def _create(store: Store, name: StreamName, schema: StreamSchema, segments: int) -> None:
    store.scopes.create(name.scope, exist_ok=True)
    if schema.raw:
        store.streams.create(name, scaling=segments)
    else:
        store.streams.create(name, schema=schema.columns, key=schema.key, time=schema.time, scaling=segments)


def _check_roles(stream: str, present: StreamSchema, key: str | None, time: str | None) -> StreamSchema:
    for role, given, existing in (("key", key, present.key), ("time", time, present.time)):
        if given is not None and given != existing:
            has = f"'{existing}'" if existing is not None else "none"
            raise InvalidArgument(f"the {role} of stream '{stream}' is {has}, not '{given}'; it can't be changed")
    return present
