"""Whether a host has room for a query. No I/O.

A host sets aside what each of its queries says it needs, and memory for each driver. These reservations don't limit
what a query uses: they keep a host from taking more queries than it can run well."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from anabranch import limits
from anabranch.catalog.state.query import QueryNeeds, QueryRefusal, QueryRow
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import size_text
from anabranch.model.names import check_plain_name

__all__ = ["HostCapacity", "drivers_that_fit", "is_announced", "refusal", "refused_text", "standby_refused_text"]

_ANNOUNCED_US = 30_000_000  # how long a refusal holds unless it is renewed


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a host has for queries: `cpus` processors, and `memory` in bytes for drivers and queries. It takes queries of
    `groups` only; None: of all. Raises InvalidArgument for impossible values."""

    cpus: float
    memory: int
    groups: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.cpus <= limits.QUERY_CPUS_MAX:
            raise InvalidArgument(f"expected cpus from 0 to {limits.QUERY_CPUS_MAX:,}, got {self.cpus}")
        for group in self.groups or ():
            check_plain_name(group, "group")


def refusal(
    capacity: HostCapacity, held: Collection[QueryNeeds], needs: QueryNeeds, *, drivers: int, new_driver: bool
) -> str | None:
    """Why a host does not take a query, None if it does. It has the queries `held`, in a number of `drivers`; with
    `new_driver` the query needs one more."""
    if capacity.groups is not None and needs.group not in capacity.groups:
        return f"it does not serve the group '{needs.group}'"
    cpus = capacity.cpus - sum(each.cpus for each in held)
    if needs.cpus > cpus + 1e-9:
        return f"the query needs {needs.cpus:g} processors, and {max(cpus, 0):g} of {capacity.cpus:g} are free"
    memory = _free_memory(capacity, held, drivers)
    wanted = needs.memory + new_driver * limits.DRIVER_BYTES
    if wanted > memory:
        driver = f", {size_text(limits.DRIVER_BYTES)} of it for a driver" if new_driver else ""
        free = f"{size_text(max(memory, 0))} of {size_text(capacity.memory)} are free"
        return f"the query needs {size_text(wanted)} of memory{driver}, and {free}"
    return None


def drivers_that_fit(capacity: HostCapacity, held: Collection[QueryNeeds], drivers: int) -> int:
    """How many drivers without queries a host with these queries and drivers may have beside them."""
    return max(_free_memory(capacity, held, drivers) // limits.DRIVER_BYTES, 0)


def refused_text(row: QueryRow, now: int) -> str | None:
    """Why hosts leave a query that waits for a host; None if no host has refused it in the last half minute."""
    if row.wanted != "running" or (row.lease is not None and row.lease.until > now):
        return None
    return _text(row.refusal, now)


def standby_refused_text(row: QueryRow, now: int) -> str | None:
    """Why a query that wants a hot standby has none: because it can't have one, or because no host has room; None if no
    host has refused it in the last half minute."""
    found = row.hot_standby if row.hot_standby is not None and row.hot_standby.until > now else None
    if row.standby != "hot" or row.wanted != "running":
        return None
    return _text(row.standby_refusal, now) if found is None else found.refused


def _text(found: QueryRefusal | None, now: int) -> str | None:
    if found is None or now - found.at > _ANNOUNCED_US:
        return None
    return f"host {found.host} has no room: {found.reason}"


def is_announced(found: QueryRefusal | None, host: str, reason: str, now: int) -> bool:
    """True if the row need not be changed for this host's reason: its refusal `found` is recent, and is another host's,
    or has the same reason and need not be renewed yet."""
    if found is None or now - found.at > _ANNOUNCED_US:
        return False
    return found.host != host or (found.reason == reason and now - found.at < _ANNOUNCED_US // 2)


def _free_memory(capacity: HostCapacity, held: Collection[QueryNeeds], drivers: int) -> int:
    return capacity.memory - drivers * limits.DRIVER_BYTES - sum(each.memory for each in held)
