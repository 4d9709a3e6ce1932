"""Waiting for a replay of a query, with its progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from anabranch.cli.progress import ProgressMeter
from anabranch.errors import InvalidArgument, QueryNotFound

if TYPE_CHECKING:
    from anabranch.deployments.info import QueryInfo
    from anabranch.store import Store

_LOOK_S: Final = 0.5


def wait_for_replay(store: Store, replay: QueryInfo) -> QueryInfo:
    """Wait until a replay has taken the place of its query, and show how many events it has read. Returns that query.
    Raises InvalidArgument if it fails, or is stopped or deleted; it is then left as it is."""
    assert replay.replaces is not None
    with ProgressMeter("replay", unit_bytes=False) as meter:
        while True:
            query = store.queries.get(replay.replaces)
            if query.version == replay.version:
                return query
            _show(store, replay, meter)
            time.sleep(_LOOK_S)


def _show(store: Store, replay: QueryInfo, meter: ProgressMeter) -> None:
    name = replay.name
    try:
        info = store.queries.get(name)
    except QueryNotFound:
        if store.queries.get(str(replay.replaces)).version == replay.version:  # it has just taken over
            return
        raise
    if info.wanted == "deleted":
        return
    if info.state == "failed" or info.wanted == "stopped":
        why = f": {info.error}" if info.error else ""
        raise InvalidArgument(f"replay '{name}' is {info.state}{why}; cancel it with: anabranch queries delete {name}")
    read = sum(each.get("read", 0) for each in info.progress)
    meter.show(f"replaying '{replay.replaces}'", read, read + sum(each.get("lag", 0) for each in info.progress))
