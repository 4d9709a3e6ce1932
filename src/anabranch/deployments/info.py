"""What is known of a deployed query: its row, and the progress of its pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.catalog.port import Reading
from anabranch.catalog.state.codec import stream_id
from anabranch.catalog.state.pipeline import PIPELINE
from anabranch.catalog.state.query import QueryRow, QueryStandby, QueryState, StandbyKind, Wanted
from anabranch.deployments.admission import refused_text, standby_refused_text
from anabranch.model.ids import Micros


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A deployed query. `state` is `waiting` for a host or for a restart, `starting`, `running`, `stopping`, `stopped` or
    `failed`; `wanted` is `running`, `stopped` or `deleted`. `host` is the process that has it. `restarts` counts the runs
    that failed in a row, and `error` says why the last one did. `group`, `cpus` and `memory` (in bytes) are what it needs of a
    host; `refused` says why hosts leave it, while they do. `results` are the names of the streams that it was
    started to feed. `standby` is the kind of standby that was chosen. The state of a hot one is `none` while no host has it,
    `behind` while it starts or has fallen behind, `ready` to take over, or `refused`; `standby_host` is the process that
    has it. `made` are the streams that it has made and that are still there, by their present names: also those of earlier
    statements and those that a replay kept. A deletion with its results deletes these. `standby_refused` says why it is refused, or why hosts leave it. `progress` holds one mapping for each statement,
    as of the last second of its run: `batch`, `watermark_us`, `rows_per_s`, `lag`, `lag_s`, `segments`, `operators` and
    others (docs/how-to/deploy-queries.md lists them). A replay `replaces` that query once it has caught up. Times in µs."""

    name: str
    state: QueryState
    wanted: Wanted
    version: int
    created_at: Micros
    changed_at: Micros
    epoch: int
    host: str | None
    restarts: int
    retry_at: Micros | None
    error: str | None
    results: tuple[str, ...]
    group: str
    cpus: float
    memory: int
    refused: str | None
    standby: StandbyKind
    standby_state: str | None
    standby_host: str | None
    standby_refused: str | None
    progress: tuple[Mapping[str, Any], ...]
    replaces: str | None = None
    made: tuple[str, ...] = ()


def info_of(txn: Reading, row: QueryRow, now: Micros) -> QueryInfo:
    """What is known of the query of this row."""
    lease = row.lease if row.lease is not None and row.lease.until > now else None
    pipeline = txn.state(PIPELINE, row.name)
    hot = row.hot_standby if row.hot_standby is not None and row.hot_standby.until > now else None
    return QueryInfo(
        name=row.name,
        state="waiting" if lease is None and row.state in ("starting", "running", "stopping") else row.state,
        wanted=row.wanted,
        version=row.version,
        created_at=row.created_at,
        changed_at=row.changed_at,
        epoch=row.epoch,
        host=None if lease is None else f"{lease.pid}@{lease.host}",
        restarts=row.restarts,
        retry_at=row.retry_at,
        error=row.error,
        results=() if pipeline is None else tuple(output.target for output in pipeline.outputs),
        group=row.needs.group,
        cpus=row.needs.cpus,
        memory=row.needs.memory,
        refused=refused_text(row, now),
        standby=row.standby,
        standby_state=_standby_state(hot) if row.standby == "hot" else None,
        standby_host=None if hot is None or hot.refused is not None else f"{hot.pid}@{hot.host}",
        standby_refused=standby_refused_text(row, now),
        progress=() if pipeline is None else tuple(pipeline.progress),
        replaces=row.replaces,
        made=() if pipeline is None else _present_names(txn, pipeline.made),
    )


def _present_names(txn: Reading, made: Sequence[str]) -> tuple[str, ...]:
    found = (txn.stream(stream_id(each)) for each in made)
    return tuple(str(info.name) for info in found if info is not None)


def progress_with_times(progress: Mapping[str, Any], time_text: Callable[[int | None], str | None]) -> dict[str, Any]:
    """The progress of a statement with times as text, also in the mappings of its segments: `watermark` instead of
    `watermark_us`, `event_time` instead of `event_time_us`."""
    shown: dict[str, Any] = {}
    for name, value in progress.items():
        if name.endswith("_us"):
            shown[name.removesuffix("_us")] = time_text(value)
        elif name == "segments":
            shown[name] = [progress_with_times(each, time_text) for each in value]
        else:
            shown[name] = value
    return shown


def _standby_state(hot: QueryStandby | None) -> str:
    if hot is None:
        return "none"
    if hot.refused is not None:
        return "refused"
    return "ready" if hot.ready else "behind"
