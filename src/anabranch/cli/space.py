"""`anabranch space`: what the files of a store hold, and what keeps bytes that nothing views any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, put_line
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from anabranch.log.upkeep.space import PinnedBytes


def space(as_json: bool = JSON_OPTION) -> None:
    """Show how many bytes the files of the store take up, and what keeps those that no stream needs any more.

    Truncating, deleting and compacting change the catalog at once. Files are removed by anabranch collect, once nothing
    refers to them and the grace time has passed. Until then they are listed here with the reason (a lease, a
    transaction, a manifest, the grace time, other streams in the same file) and the time when it ends.

    Lines marked "in use" count as live: another stream, such as a copy, still views bytes that the stream they were
    written to no longer views.

    Examples:

      anabranch space
      anabranch space --json | jq '.pinned[] | select(.reason == "lease")'
    """
    with open_store() as opened:
        report = opened.space()
    if as_json:
        pinned = [
            {**each._asdict(), "until": None if each.until is None else iso_time(each.until)} for each in report.pinned
        ]
        totals = {name: getattr(report, name) for name in ("total", "live", "unused", "manifests")}
        print_json({**totals, "pinned": pinned})
        return
    unused = f", {size_text(report.unused)} no longer needed" if report.unused else ""
    manifests = f", {size_text(report.manifests)} in manifests" if report.manifests else ""
    put_line(f"{size_text(report.total)} in files: {size_text(report.live)} live{manifests}{unused}")
    if report.pinned:
        put_line()
        rows = [
            (size_text(each.bytes), counted(each.files, "file"), _kept_by(each), _until(each)) for each in report.pinned
        ]
        print_columns(("BYTES", "FILES", "KEPT BY", "UNTIL"), rows)


def _until(each: PinnedBytes) -> str:
    """Until when, and what else ends it."""
    return each.ends if each.until is None else f"{iso_time(each.until)} ({each.ends})"


def _kept_by(each: PinnedBytes) -> str:
    by = f"{each.reason}: {each.by}" if each.by else each.reason
    return f"{by} (in use)" if each.live else by
