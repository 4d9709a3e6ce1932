"""`anabranch import`: import the streams of an archive into this store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cli.archive import TRUSTED_OPTION, URL_ARGUMENT
from anabranch.cli.declare import argument, flag
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.target_store import WINDOW_OPTION, finish

if TYPE_CHECKING:
    from anabranch.transfer.archives.format import Imported


def import_(
    url: str = URL_ARGUMENT,
    name: str | None = argument(
        "[NAME]",
        "The name in this store: scope/name, or for a whole scope the scope.",
        show_default="its own",
        default=None,
    ),
    trusted: str | None = TRUSTED_OPTION,
    retention: bool = flag("--retention", "Import its retention policy too; expired events are removed at once."),
    window: int = WINDOW_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Import an archive into this store: the same segments, offsets, times and columns, under any name.

    Every byte is verified; a file that is missing, changed or unexpected is named, and nothing is imported. A job of
    this store does the work: if it is interrupted, run the same command again, or `anabranch job resume`, to continue
    with the missing files. Running it again after it is done changes nothing.

    Examples:

      anabranch import /mnt/archive/sensors
      anabranch import s3://bucket/2025 iot/sensors-2025 --trusted archive-key.pub.pem
    """
    with open_store() as opened, ProgressMeter("importing") as meter:
        job = opened.jobs.import_archive(
            url, as_=name, trusted=trusted, retention=retention, window=window, progress=meter.show
        )
        made: Imported = finish(job, meter)
    if as_json:
        print_json({**made.to_json(), "job": job.id})
    else:
        names = ", ".join(f"'{each}'" for each, _ in made.streams)
        print_note(f"{counted(len(made.streams), 'stream')} imported: {names or 'the scope was empty'}")
