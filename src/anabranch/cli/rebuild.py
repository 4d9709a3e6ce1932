"""anabranch rebuild: a catalog made anew from the last manifest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, invocation, new_app, open_store, store_path
from anabranch.cli.output import counted, iso_time, print_json, say
from anabranch.cli.progress import Meter
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.log.rebuild import RebuildReport

app = new_app()


@app.command()
def rebuild(
    force: Annotated[bool, typer.Option("--force", help="Also replace a catalog that is sound.")] = False,
    discard_newer: Annotated[
        bool, typer.Option("--discard-newer", help="Let collect have the newer blobs that the last rebuild reported.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Make a lost or damaged catalog anew from the newest manifest among the blobs.

    Upkeep writes manifests, and so does backup --catalog-only. What was appended after the manifest is not in the new
    catalog: blobs that may hold such events are reported and kept, never adopted. End every process that uses the store
    first. A damaged SQLite catalog stays beside the new one, as catalog.db.old-….

    Exit code: 0 rebuilt, 1 rebuilt but blobs are missing, damaged or newer, 2 it could not be done.

    Examples:

      anabranch rebuild
      anabranch rebuild --json | jq '.newer'
      anabranch rebuild --discard-newer
    """
    if discard_newer:
        if force:
            raise InvalidArgument("--discard-newer rebuilds nothing, so it takes no --force")
        with open_store(store) as opened:
            done = opened.forget_newer()
        say("collect will remove what the rebuild reported" if done else "no rebuild has left anything to discard")
        return
    from anabranch.store import rebuild as rebuild_store

    with Meter("rebuilding", unit_bytes=False) as meter:
        report = rebuild_store(
            store_path(store), blobs=invocation.blobs, history=invocation.history, force=force, progress=meter.show
        )
    if as_json:
        print_json(asdict(report))
    else:
        _tell(report)
    if report.broken or report.newer:
        raise typer.Exit(1)


def _tell(report: RebuildReport) -> None:
    for folder, why in report.damaged.items():
        print(f"skipped: manifest {folder}: {why}")
    for key, why in report.broken.items():
        print(f"damaged: blob {key}: {why}")
    for newer in report.newer:
        of = f" of {', '.join(newer.streams)}" if newer.streams else ""
        by = f" by {', '.join(newer.writers)}" if newer.writers else ""
        note = f" ({newer.note})" if newer.note else ""
        print(f"newer: blob {newer.key}: {counted(newer.events, 'event')}{of}{by}{note}")
    say(
        f"rebuilt as of {iso_time(report.taken_at)}: {counted(report.streams, 'stream')}, "
        f"{counted(report.events, 'event')}, {counted(report.blobs, 'blob')}"
    )
    say("not known of the time since then:")
    for what in report.unknown:
        say(f"  {what}")
    if report.newer:
        say(
            f"{counted(len(report.newer), 'blob')} may hold events acknowledged since then; collect spares them until "
            "anabranch rebuild --discard-newer"
        )
