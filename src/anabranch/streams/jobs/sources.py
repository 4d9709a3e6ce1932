"""The sources of a job, each with the store that it lives in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.errors import InvalidArgument
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.streams.jobs.site import Site, Sited

Source = str | StreamName | StreamRange


@dataclass(frozen=True, slots=True)
class InStore:
    """A stream of `store`, or a range of one, among sources of other stores."""

    store: Sited
    source: Source


class Placed(NamedTuple):
    """A source, and the number of its store among those of its job."""

    part: StreamRange
    store: int


def placed(own: Site, streams: Sequence[Source | InStore]) -> tuple[list[Site], list[Placed]]:
    """The stores that sources live in, in the order in which they come up, and the sources. Those that name no store are
    in `own`. Raises InvalidName, InvalidCut."""
    sites: list[Site] = []
    found = []
    for each in streams:
        site, source = (each.store.site, each.source) if isinstance(each, InStore) else (own, each)
        number = next((n for n, known in enumerate(sites) if known.catalog is site.catalog), len(sites))
        if number == len(sites):
            sites.append(site)
        found.append(Placed(StreamRange.of(source), number))
    return sites, found


def places_of(sites: Sequence[Site], target: Site) -> list[Mapping[str, str]]:
    """How a job's row names its stores: nothing for the one that it writes to."""
    return [{} if site.catalog is target.catalog else site.place for site in sites]


def given(places: Sequence[Mapping[str, str]], target: Site, others: Sequence[Sited]) -> list[Site]:
    """The stores of a job that is resumed, where the `others` are given in the order of the row. Raises
    InvalidArgument where these are not as many as it names."""
    wanted = sum(1 for place in places if place)
    if wanted and wanted != len(others):
        raise InvalidArgument(
            f"the job reads {wanted} other store(s): give as many, in the order in which it shows them"
        )
    left = iter(others)
    return [next(left).site if place else target for place in places]
