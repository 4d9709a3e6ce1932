"""anabranch restore: a store made of a backup."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, invocation, new_app, store_path
from anabranch.cli.output import counted, iso_time, print_json, say, size_text
from anabranch.cli.progress import Meter

app = new_app()


@app.command()
def restore(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Where the backup lies: a folder or URL.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Make a store of a backup, where there is none.

    The new store may have a catalog of another kind than the old one. It is there whole or not at all: what was cut off
    is begun again by the same command. Pipelines come without Spark's checkpoints: begin them anew with pipeline
    run --from … --replace.

    Examples:

      anabranch --store ./river2 restore /mnt/backup/river
      anabranch --store postgresql://localhost/streams --blobs s3://bucket/river restore /mnt/backup/river
    """
    from anabranch.store import restore as restore_store

    with Meter("restoring", unit_bytes=False) as meter:
        report = restore_store(
            place, store_path(store), blobs=invocation.blobs, history=invocation.history, progress=meter.show
        )
    if as_json:
        print_json(asdict(report))
        return
    there = f", {report.blobs_there:,} were there" if report.blobs_there else ""
    say(
        f"{counted(report.streams, 'stream')} as of {iso_time(report.taken_at)}: "
        f"{counted(report.blobs, 'blob')} copied, {size_text(report.bytes)}{there}"
    )
