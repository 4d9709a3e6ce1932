"""The warning about a run that loses many events because they come too late. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch import limits

__all__ = ["late_warning"]


def late_warning(progress: Mapping[str, Any]) -> str | None:
    """A warning if the statement's run lost more than the share `limits.LATE_SHARE_MAX` of the events it read; else
    None.

    `progress` is a `QueryProgress` as JSON, possibly of an earlier version. There is no warning while a run has read
    fewer than `limits.LATE_SHARE_EVENTS` events and has not ended.
    """
    read, late = int(progress.get("run_read", 0)), int(progress.get("run_late", 0))
    few = read < limits.LATE_SHARE_EVENTS and progress.get("state") not in ("ended", "failed")
    if few or late <= limits.LATE_SHARE_MAX * read:
        return None
    target, kept = progress["target"], progress.get("keeps_late", False)
    late_stream = progress.get("late_stream") or f"{target}_late"
    return (
        f"{target}: {'' if kept else 'at least '}{late:,} of {read:,} events that this run read ({late / max(read, 1):.0%}) "
        f"came too late for their windows: they are missing from the results"
        f"{f', and kept in {late_stream}' if kept else ' and kept nowhere (late = false)'}. Allow more disorder by a longer "
        "watermark = '…' in the statement, then correct the results with --from head --replace"
    )
