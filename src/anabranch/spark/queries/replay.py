"""When a replay has caught up, and the swap by which it takes the place of its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.catalog.state.query import QueryRow
from anabranch.deployments.hosting import kept_versions
from anabranch.deployments.replay import swap
from anabranch.errors import Conflict
from anabranch.spark.pipelines import record
from anabranch.spark.pipelines.plan import plan
from anabranch.store import Store

__all__ = ["has_caught_up", "swap_replay"]

_BEHIND_S_MAX: Final = 5.0  # the age of the oldest event still to be read, where events never stop coming


def has_caught_up(store: Store, row: QueryRow) -> bool:
    """True if, as of the last heartbeat, every statement of the replay has read its sources to the tail, or is less
    than 5 s behind, and has published the windows that these events close."""
    pipeline = record.get(store.catalog, row.name)
    if pipeline is None or not pipeline.prepared or len(pipeline.progress) < len(pipeline.outputs):
        return False
    return all(
        each.get("state") == "running"
        and each.get("batch", -1) >= 0
        and (each.get("lag") == 0 or each.get("lag_s", _BEHIND_S_MAX) < _BEHIND_S_MAX)
        and _has_published(each)
        for each in pipeline.progress
    )


def _has_published(progress: Mapping[str, Any]) -> bool:
    # The windows that a batch closes are published by the next one, which may read nothing. Without events at all,
    # Spark reports a batch without rows after some seconds.
    return not progress.get("operators") or progress["batch"] > 0 or progress.get("batch_rows") == 0


def swap_replay(store: Store, row: QueryRow) -> Mapping[str, str]:
    """Let the replay take the place of its query, in one transaction. Returns the new names of the earlier results by
    their present ones. Raises InvalidArgument if a name that it needs is another stream's, Conflict if the host has
    lost the replay."""
    version = next((each for each in kept_versions(store.catalog, row.name) if each.number == row.version), None)
    if version is None:
        raise Conflict(f"query '{row.name}' was deleted")
    outputs = [step.output for step in plan(version.text, version.parameters, version.files)]
    with store.catalog.writing() as txn:
        return swap(txn, row.name, row.epoch, outputs, store.runtime.clock.now())
