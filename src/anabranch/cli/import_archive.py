"""`anabranch import`: the streams of an archive, in this store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.archive import TrustedOption, UrlArgument
from anabranch.cli.elsewhere import WindowOption, finish
from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store, store_path
from anabranch.cli.output import counted, print_json, say
from anabranch.cli.progress import Meter

if TYPE_CHECKING:
    from anabranch.core.archive import Imported

app = new_app()


@app.command("import")
def import_(
    url: UrlArgument,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Its name here: scope/name, or of a whole scope the scope.", show_default="its own"
        ),
    ] = None,
    trusted: TrustedOption = None,
    retention: Annotated[
        bool, typer.Option("--retention", help="Take its policy of retention along: old events go at once.")
    ] = False,
    window: WindowOption = 4,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Bring an archive into this store: the same segments, offsets, times and columns, under any name.

    Every byte is verified; a file that is missing, changed or strange is named, and then nothing is imported. A job of
    this store does it: interrupted, the same command, or `anabranch job resume`, goes on with the files that are missing.
    Asked again when it is done, nothing changes.

    Examples:

      anabranch import /mnt/archive/sensors
      anabranch import s3://bucket/2025 iot/sensors-2025 --trusted archive-key.pub.pem
    """
    with open_store(store) as opened, Meter("importing") as meter:
        job = opened.jobs.import_archive(
            url, as_=name, trusted=trusted, retention=retention, window=window, progress=meter.show
        )
        made: Imported = finish(job, meter, store_path(store))
    if as_json:
        print_json({**made.to_json(), "job": job.id})
    else:
        names = ", ".join(f"'{each}'" for each, _ in made.streams)
        say(f"{counted(len(made.streams), 'stream')} imported: {names or 'the scope was empty'}")
