"""Deployed queries: what is wanted of each, which host runs it, and how that went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from anabranch import limits
from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned
from anabranch.model.ids import Micros

Wanted: TypeAlias = Literal["running", "stopped", "deleted"]
QueryState: TypeAlias = Literal["waiting", "starting", "running", "stopping", "stopped", "failed"]
StandbyKind: TypeAlias = Literal["warm", "hot"]
FORMAT: Final = 1
DEFAULT_GROUP: Final = "default"


@dataclass(frozen=True, slots=True)
class QueryNeeds:
    """What a query needs of a host. Queries of different groups never share a driver. `cpus` are processors, `memory` is in
    bytes and does not count the driver itself."""

    group: str = DEFAULT_GROUP
    cpus: float = limits.QUERY_CPUS
    memory: int = limits.QUERY_BYTES


@dataclass(frozen=True, slots=True)
class QueryRefusal:
    """Why the host of this name did not take the query, or its hot standby, as of `at`."""

    host: str
    reason: str
    at: Micros


@dataclass(frozen=True, slots=True)
class QueryLease:
    """The host that runs a query, until it renews the lease or the time has come. `token` is new for every host process;
    `pid` and `host` are for display."""

    token: str
    pid: int
    host: str
    until: Micros


@dataclass(frozen=True, slots=True)
class QueryRestart:
    """The next run starts over: see `anabranch.catalog.state.pipeline.Restart`. `generation` is the generation of
    checkpoints that it begins, chosen by the first driver that tries, so that it begins only once.

    `upgrade`: statements that can keep their state do. `only` are then the targets of those that start over, chosen by
    that driver too."""

    places: tuple[str, ...]
    by: str = "append"
    replace: bool = False
    generation: int | None = None
    upgrade: bool = False
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class QueryStandby:
    """The host that runs the hot standby of a query, until it renews the lease or the time has come; `token`, `pid` and
    `host` as in `QueryLease`. It follows the run of `change`. `ready`: it could take over now. `refused` is the reason
    why the query, as of this change, can't have one."""

    token: str
    pid: int
    host: str
    until: Micros
    change: int
    ready: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A deployed query. `version` is the one that is to run. `change` rises with everything that a running driver has to
    be restarted for; a driver runs the row as of one change.

    `state` is what its host last reported: `waiting` for a host or for `retry_at`, or what its driver does. `epoch`
    rises with each host that takes it, and `lease` names that host. `restarts` counts the runs that failed in a row.
    With `drop_results` a wanted deletion also deletes the streams of its results; with `stop_now` a wanted stop does
    not wait for the micro-batch. `standby` is the kind of standby that is wanted, and `hot_standby` the hot one, if a
    host has it. `refusal` says why a host left it, until one takes it, and `standby_refusal` why a host left its hot
    standby.

    A replay (`anabranch.deployments.replay`) `replaces` the query of that name once it has caught up, and `keeps` the
    earlier results then. Times in µs."""

    name: str
    created_at: Micros
    changed_at: Micros
    wanted: Wanted
    version: int
    change: int
    restart: QueryRestart | None = None
    state: QueryState = "waiting"
    epoch: int = 0
    lease: QueryLease | None = None
    restarts: int = 0
    retry_at: Micros | None = None
    error: str | None = None
    drop_results: bool = False
    stop_now: bool = False
    standby: StandbyKind = "warm"
    hot_standby: QueryStandby | None = None
    replaces: str | None = None
    keeps: bool = True
    needs: QueryNeeds = QueryNeeds()
    refusal: QueryRefusal | None = None
    standby_refusal: QueryRefusal | None = None


QUERY: Final[StateKind[str, QueryRow]] = state_kind(
    "query",
    about="Deployed queries: what is wanted of each, which host runs it, and how that went.",
    by="the query's name",
    key=TEXT_KEY,
    value=versioned(codec_of(QueryRow), FORMAT, "query"),
    identity=lambda row: row.name,
    example=(
        "means",
        QueryRow(
            "means",
            Micros(1_767_225_600_000_000),
            Micros(1_767_225_660_000_000),
            "running",
            2,
            3,
            restart=QueryRestart(("head",), replace=True, generation=2),
            state="running",
            epoch=1,
            lease=QueryLease("5d41402abc4b2a76", 4711, "host-1", Micros(1_767_225_670_000_000)),
            standby="hot",
            hot_standby=QueryStandby("7d793037a0760186", 4712, "host-2", Micros(1_767_225_670_000_000), 3, ready=True),
        ),
    ),
)
