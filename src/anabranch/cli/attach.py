"""`anabranch attach`: Parquet files as a stream, where they lie."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.archive import TrustedOption
from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store
from anabranch.cli.output import print_json, say
from anabranch.cli.progress import Meter

app = new_app()


@app.command()
def attach(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="An archive, a folder or bucket of Parquet files, or one such file."),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The stream's name here; an archive has one of its own.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="The column with the routing key.")] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="The column with the event time.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="ID", help="Which one, where a store's files hold several.")
    ] = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Sum up all bytes now, so that any later change is noticed.")
    ] = False,
    trusted: TrustedOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Make Parquet files a stream of this store without copying them: they are read where they lie.

    What is appended goes to this store. The files are never written to or removed. The order is that of the files'
    names, then of their rows; an archive keeps its segments and offsets.

    Examples:

      anabranch attach /data/measurements iot/old --key device --time at
      anabranch attach s3://bucket/2025 iot/sensors-2025
      anabranch attach trips.parquet taxi/trips
    """
    with open_store(store) as opened, Meter("looking at files", unit_bytes=False) as meter:
        made = opened.streams.attach(
            url,
            name,
            key=key,
            time=time,
            stream=stream,
            checksums=checksums,
            trusted=trusted,
            progress=meter.show,
        )
    if as_json:
        print_json(made.to_json())
    else:
        names = ", ".join(f"'{each}'" for each, _ in made.streams)
        say(f"attached as {names}; the files stay where they are" if names else "nothing attached: the scope was empty")
