"""`anabranch rebuild`: recreate the catalog from the last manifest."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, invocation, open_store, store_path
from anabranch.cli.output import counted, iso_time, print_json, print_note, print_unconfirmed, put_line
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.log.recovery.rebuild import RebuildReport


def rebuild(
    force: bool = flag("--force", "Also replace a catalog that is intact."),
    discard_newer: bool = flag("--discard-newer", "Let collect remove the newer blobs that the last rebuild reported."),
    store_id: str | None = option(
        "--store-id", "ID", "The store to rebuild, if the blobs hold manifests of several stores."
    ),
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Recreate a lost or damaged catalog from the newest manifest among the blobs.

    Upkeep writes manifests, and so does backup --catalog-only. What was appended after the manifest is not in the new
    catalog: blobs that may hold such events are reported and kept, never adopted. End every process that uses the store
    first. Attached files are read only once you confirm their location: attach --confirm PLACE. A damaged SQLite
    catalog is kept beside the new one, as catalog.db.old-….

    Exit code: 0 rebuilt, 1 rebuilt but blobs are missing, damaged or newer, 2 it could not be done.

    Examples:

      anabranch rebuild
      anabranch rebuild --json | jq '.newer'
      anabranch rebuild --discard-newer --yes
    """
    if discard_newer:
        if force:
            raise InvalidArgument("--discard-newer rebuilds nothing, so it can't be combined with --force")
        with open_store() as opened:
            confirm("Give up the newer blobs that the last rebuild reported?", yes=yes)
            done = opened.forget_newer()
        print_note("collect will remove what the rebuild reported" if done else "no rebuild left anything to discard")
        return
    from anabranch.store import rebuild as rebuild_store
    from anabranch.store.addresses import POSTGRES

    place = store_path()
    if force or place.startswith(POSTGRES):
        confirm("Replace the store's catalog by its last manifest, and lose all later changes?", yes=yes)
    with ProgressMeter("rebuilding", unit_bytes=False) as meter:
        report = rebuild_store(
            place,
            blobs=invocation.blobs,
            history=invocation.history,
            force=force,
            store=store_id,
            progress=meter.show,
        )
    if as_json:
        print_json(asdict(report))
    else:
        _report(report)
    if report.broken or report.newer:
        raise typer.Exit(1)


def _report(report: RebuildReport) -> None:
    for folder, why in report.damaged.items():
        put_line(f"skipped: manifest {folder}: {why}")
    for key, why in report.broken.items():
        put_line(f"damaged: blob {key}: {why}")
    for newer in report.newer:
        of = f" of {', '.join(newer.streams)}" if newer.streams else ""
        by = f" by {', '.join(newer.writers)}" if newer.writers else ""
        note = f" ({newer.note})" if newer.note else ""
        put_line(f"newer: blob {newer.key}: {counted(newer.events, 'event')}{of}{by}{note}")
    print_note(
        f"rebuilt as of {iso_time(report.taken_at)}: {counted(report.streams, 'stream')}, "
        f"{counted(report.events, 'event')}, {counted(report.blobs, 'blob')}"
    )
    print_unconfirmed(report.unconfirmed)
    print_note("unknown since then:")
    for what in report.unknown:
        print_note(f"  {what}")
    if report.newer:
        print_note(
            f"{counted(len(report.newer), 'blob')} may hold events acknowledged since then; collect spares them until "
            "anabranch rebuild --discard-newer"
        )
