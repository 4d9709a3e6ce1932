"""`anabranch write`: events from files and pipes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from anabranch.cli.formats import FileFormat
from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, new_app, open_store
from anabranch.cli.output import counted, print_json, say
from anabranch.cli.progress import Meter
from anabranch.errors import InvalidArgument, StreamNotFound

if TYPE_CHECKING:
    from anabranch.cli.intake.open import Intake
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
        typer.Option("--create/--no-create", help="Create the stream where there is none, with the columns found."),
    ] = True,
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
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", metavar="C", help="Between the fields of CSV; default: a comma.")
    ] = None,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="All of the file at once or nothing of it; it must fit into 1 GiB.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Append the events of a file or a pipe.

    It holds JSON lines, CSV with a header, Parquet, Arrow, or plain lines, and may end in .gz. A stream that is not there is created with the columns that the first 4 MiB show; plain lines make a raw stream.
    Times are ISO 8601, or integers of µs since 1970. What comes through a pipe is durable as soon as the pipe pauses.

    A wrong line ends it, saying which line and what is wrong: all events before it are written, and nothing after it.
    With --atomic nothing is written at all.

    Examples:

      anabranch write iot/sensors measurements.csv --key device --time at
      anabranch write iot/sensors more.parquet --atomic
      tail -f app.log | anabranch write logs/app -
    """
    from anabranch.cli.delivery import Delivery
    from anabranch.cli.intake.open import open_intake
    from anabranch.cli.intake.source import BadInput, Source
    from anabranch.model.names import StreamName

    name = StreamName.parse(stream)
    new = _New(key, time, schema, segments)
    with Source(None if file == "-" else Path(file)) as source, open_store(store, create=create) as opened:
        began = opened.runtime.clock.monotonic()
        found = opened.streams.find(name)
        present = None if found is None else found.schema
        if present is None and not create:
            raise StreamNotFound(stream)
        with Meter(f"writing {stream}", total=source.size) as meter:
            try:
                intake = open_intake(source, form, present=present, delimiter=delimiter, now=opened.runtime.clock.now)
                columns = _check_roles(stream, present, key, time) if present else new.schema_of(intake)
            except BadInput as exc:
                raise InvalidArgument(f"{source.name}, {exc}; nothing is written") from exc
            delivery = Delivery(opened, source, columns, meter)
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
            told = {"stream": stream, "events": delivery.durable, "created": present is None}
            print_json({**told, "seconds": round(seconds, 3), "tail": str(opened.streams.tail(name))})
            return
    remark = ", which is new" if present is None else ""
    # Of a few events the rate would tell how fast the program starts.
    rate = f" ({delivery.durable / seconds:,.0f}/s)" if delivery.durable >= _RATED_EVENTS_MIN else ""
    say(f"{counted(delivery.durable, 'event')} written to '{stream}'{remark}, in {seconds:.1f} s{rate}")


class _New(NamedTuple):
    """What was said about a stream that is to be created."""

    key: str | None
    time: str | None
    schema: str | None
    segments: int

    def schema_of(self, intake: Intake) -> StreamSchema:
        """The stream's schema: as told, or as the input shows."""
        from anabranch.cli.schema_text import parse_schema
        from anabranch.model.schema import RAW, StreamSchema

        columns = intake.schema() if self.schema is None else parse_schema(self.schema)
        if columns is None:
            if self.key is not None or self.time is not None:
                raise InvalidArgument("plain lines have no columns that --key and --time could name")
            return RAW
        return StreamSchema.typed(columns, self.key, self.time)


def _create(store: Store, name: StreamName, schema: StreamSchema, segments: int) -> None:
    store.streams.create_scope(name.scope, exist_ok=True)
    if schema.raw:
        store.streams.create(name, scaling=segments)
    else:
        store.streams.create(name, schema=schema.columns, key=schema.key, time=schema.time, scaling=segments)


def _check_roles(stream: str, present: StreamSchema, key: str | None, time: str | None) -> StreamSchema:
    for role, told, there in (("key", key, present.key), ("time", time, present.time)):
        if told is not None and told != there:
            has = f"'{there}'" if there is not None else "none"
            raise InvalidArgument(f"the {role} of stream '{stream}' is {has}, not '{told}'; it can't be changed")
    return present
