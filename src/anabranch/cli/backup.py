"""`anabranch backup`: the catalog and the blobs it needs, copied elsewhere; or the catalog alone, among the blobs."""

from __future__ import annotations

from dataclasses import asdict

from anabranch.cli.declare import argument, flag
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_result
from anabranch.cli.progress import ProgressMeter
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import size_text


def backup(
    place: str | None = argument(
        "[PLACE]", "A folder or the URL of an object store that holds nothing else.", default=None
    ),
    catalog_only: bool = flag("--catalog-only", "Only copy the catalog among the store's own blobs, for rebuild."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Copy the store as of one moment to another place.

    Blobs that an earlier backup copied there are not copied again, and blobs that only it needed are removed: the place
    holds one backup, of this store; a place with that of another store is refused. It may be interrupted at any time; the previous backup is valid until the new one is complete.
    Safe while others write and read. Encrypted events stay encrypted. Spark's checkpoints of pipelines are not
    included.

    Examples:

      anabranch backup /mnt/backup/river
      anabranch backup s3://bucket/river-backup
      anabranch backup --catalog-only
    """
    if (place is None) != catalog_only:
        raise InvalidArgument("pass a location for the backup, or --catalog-only")
    with open_store() as opened, ProgressMeter("backing up", unit_bytes=False) as meter:
        if place is None:
            manifest = opened.export_manifest(progress=meter.show)
            result: dict[str, object] = {
                "manifest": manifest.folder,
                "taken_at": manifest.taken_at,
                "bytes": sum(piece.size for piece in manifest.parts),
            }
            text = f"the catalog was copied to {manifest.folder}, {size_text(sum(p.size for p in manifest.parts))}"
        else:
            report = opened.backup(place, progress=meter.show)
            result = asdict(report)
            text = (
                f"{counted(report.streams, 'stream')} as of {iso_time(report.taken_at)}: "
                f"{counted(report.blobs, 'blob')} copied, {size_text(report.bytes)}; "
                f"{report.blobs_reused:,} already there, {report.removed:,} no longer needed and removed"
            )
    print_result(as_json, result, text)
