"""The sources of a job, each with its store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.errors import InvalidArgument
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.transfer.jobs.job_store import JobStore, ProvidesJobStore

Source = str | StreamName | StreamRange


@dataclass(frozen=True, slots=True)
class InStore:
    """A stream or stream range of `store`, given among sources of other stores."""

    store: ProvidesJobStore
    source: Source


def check_several(sources: Sequence[Source | InStore]) -> None:
    """Raises InvalidArgument for a single source, or anything else that is no list."""
    if isinstance(sources, str | StreamName | StreamRange) or not isinstance(sources, Collection):
        raise InvalidArgument(f"expected a list of streams or ranges to stitch, got '{sources!s:.200}' alone")


class PlacedSource(NamedTuple):
    """A source, and the number of its store among those of its job."""

    part: StreamRange
    store: int


def placed(own: JobStore, streams: Sequence[Source | InStore]) -> tuple[list[JobStore], list[PlacedSource]]:
    """The stores of the sources, in order of first appearance, and the sources. Sources that name no store are in
    `own`. Raises InvalidName, InvalidCut."""
    sites: list[JobStore] = []
    found = []
    for each in streams:
        job_store, source = (each.store.job_store, each.source) if isinstance(each, InStore) else (own, each)
        number = next((n for n, other in enumerate(sites) if other.catalog is job_store.catalog), len(sites))
        if number == len(sites):
            sites.append(job_store)
        found.append(PlacedSource(StreamRange.of(source), number))
    return sites, found


def places_of(sites: Sequence[JobStore], target: JobStore) -> list[Mapping[str, str]]:
    """The addresses of a job's stores, as its row records them: empty for the store that the job writes to."""
    return [{} if job_store.catalog is target.catalog else job_store.place for job_store in sites]


def given(places: Sequence[Mapping[str, str]], target: JobStore, others: Sequence[ProvidesJobStore]) -> list[JobStore]:
    """The stores of a resumed job; `others` are its stores besides the target, in the order of the row's places. Raises
    InvalidArgument if the row has another number of them."""
    wanted = sum(1 for place in places if place)
    if wanted and wanted != len(others):
        raise InvalidArgument(
            f"the job reads {wanted} other store(s): pass that many, in the order in which job show lists them"
        )
    left = iter(others)
    return [next(left).job_store if place else target for place in places]
