"""`anabranch restore`: create a store from a backup."""

from __future__ import annotations

from dataclasses import asdict

from anabranch.cli.declare import argument
from anabranch.cli.options import JSON_OPTION, invocation, store_path
from anabranch.cli.output import counted, iso_time, print_json, print_note, print_unconfirmed
from anabranch.cli.progress import ProgressMeter
from anabranch.model.amounts import size_text


def restore(
    place: str = argument("PLACE", "The location of the backup: a folder or URL."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Create a store from a backup, at a location without a store.

    The new store may have another kind of catalog than the old one. It is complete or absent: to continue an
    interrupted restore, run the same command again. Attached files are read only once you confirm their location:
    attach --confirm PLACE. Pipelines are restored without Spark's checkpoints: restart them with pipeline run --from …
    --replace.

    Examples:

      anabranch --store ./river2 restore /mnt/backup/river
      anabranch --store postgresql://localhost/streams --blobs s3://bucket/river restore /mnt/backup/river
    """
    from anabranch.store import restore as restore_store

    with ProgressMeter("restoring", unit_bytes=False) as meter:
        report = restore_store(
            place, store_path(), blobs=invocation.blobs, history=invocation.history, progress=meter.show
        )
    if as_json:
        print_json(asdict(report))
        return
    there = f", {report.blobs_reused:,} already there" if report.blobs_reused else ""
    print_note(
        f"{counted(report.streams, 'stream')} as of {iso_time(report.taken_at)}: "
        f"{counted(report.blobs, 'blob')} copied, {size_text(report.bytes)}{there}"
    )
    print_unconfirmed(report.unconfirmed)
