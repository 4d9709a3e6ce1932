"""How the verbs of `anabranch.deployments.api` change the row of a deployed query: needs, standby, version, restart.
No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch import limits
from anabranch.catalog.state.query import QueryNeeds, QueryRestart, QueryRow, QueryState, StandbyKind, Wanted
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.amounts import to_size
from anabranch.model.ids import Micros
from anabranch.model.names import check_plain_name
from anabranch.model.time_kind import TimeKind, time_kind
from anabranch.reading.bounds import Place, place_text

__all__ = ["NeedsChange", "refuse_deleted", "restart_at", "wanted_row", "with_standby"]


@dataclass(frozen=True, slots=True)
class NeedsChange:
    """New requirements of a query on its host; None keeps the present value. `memory` is in bytes, or text such as `500MB`. Raises
    InvalidArgument."""

    group: str | None = None
    cpus: float | None = None
    memory: int | str | None = None

    def __post_init__(self) -> None:
        if self.cpus is not None and not 0 <= self.cpus <= limits.QUERY_CPUS_MAX:
            raise InvalidArgument(f"expected cpus from 0 to {limits.QUERY_CPUS_MAX:,}, got {self.cpus}")
        self.merged_into(QueryNeeds())  # checks the group and the memory

    def merged_into(self, needs: QueryNeeds) -> QueryNeeds:
        """The needs, with the given values in place of the previous ones."""
        return QueryNeeds(
            needs.group if self.group is None else check_plain_name(self.group, "group"),
            needs.cpus if self.cpus is None else float(self.cpus),
            needs.memory if self.memory is None else to_size(self.memory),
        )

    def applied(self, row: QueryRow) -> QueryRow:
        """The row with these needs. If that changes them, the run ends, and a host that has room for it begins another."""
        needs = self.merged_into(row.needs)
        return row if needs == row.needs else replace(row, needs=needs, change=row.change + 1, refusal=None)


def with_standby(row: QueryRow, kind: StandbyKind | None) -> QueryRow:
    """The row with this kind of standby; None leaves it as it is."""
    kind = kind or row.standby
    return replace(row, standby=kind, hot_standby=row.hot_standby if kind == "hot" else None)


def wanted_row(row: QueryRow, now: Micros, *, version: int, restart: QueryRestart | None, start: bool) -> QueryRow:
    """The row that asks for this version and restart, running if `start`, else stopped. The same row if it asks for that
    already and has not failed."""
    same = row.version == version
    if same and restart is None:
        restart = row.restart
    is_same_run = same and restart == row.restart
    if is_same_run and start == (row.wanted == "running") and row.state != "failed":
        return row
    found = replace(row, version=version, restart=restart, changed_at=now, change=row.change + 1)
    wanted: Wanted = "running" if start else "stopped"
    state: QueryState
    if row.state in ("starting", "running", "stopping"):  # its present run ends first
        state = "starting" if start else "stopping"
    else:
        state = "waiting" if start else "stopped"
    return replace(found, wanted=wanted, state=state, restarts=0, retry_at=None, error=None, stop_now=False)


def restart_at(places: Place | Sequence[Place] | None, by: TimeKind, replace_results: bool) -> QueryRestart | None:
    """Where the next run starts over; None if it continues. Raises InvalidArgument."""
    time_kind(by)
    if places is None:
        if replace_results:
            raise InvalidArgument("replace_results requires a place to start from")
        return None
    several = places if isinstance(places, list | tuple) else [places]
    return QueryRestart(tuple(map(place_text, several)), by, replace_results)


def refuse_deleted(row: QueryRow) -> None:
    """Raises Conflict for a query that is being deleted."""
    if row.wanted == "deleted":
        raise Conflict(f"query '{row.name}' is being deleted; a host does that (anabranch queries serve)")
