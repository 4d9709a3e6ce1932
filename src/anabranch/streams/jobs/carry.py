"""Carrying the bundles of a job elsewhere: in other processes, that know nothing of it but what travels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.catalog.port import Lease
from anabranch.log.lease import Hold
from anabranch.model.ids import StreamId
from anabranch.streams.jobs.cargo import Cargo
from anabranch.streams.jobs.control import Control, Stopped
from anabranch.streams.jobs.gauge import Gauge
from anabranch.streams.jobs.move import Moved, Mover
from anabranch.streams.jobs.row import Range
from anabranch.streams.jobs.sift import Sifted
from anabranch.streams.jobs.site import Site


@dataclass(frozen=True, slots=True)
class Porter:
    """Who carries a bundle in some process: as a part of which run, under which lease, who counts what it holds, and who
    hears of what it has moved."""

    control: Control
    hold: Hold
    gauge: Gauge
    moved: Moved


@dataclass(frozen=True)
class Bundle(ABC):
    """A part of the work of a job's run `owner`, and all that it takes: a small value that travels."""

    job: str
    owner: str
    lease: Lease

    @property
    def store(self) -> int:
        """The number of the store that it reads, among those of the job."""
        return 0

    @abstractmethod
    def move(self, source: Site, target: Site, porter: Porter) -> None:
        """Do what is missing of it. Raises Stopped, JobRunning, and what moving raises."""


@dataclass(frozen=True)
class Moving(Bundle):
    """Ranges of one source of a job, which lives in its store of the number `store`; where repeats are left out, with what stays
    of them."""

    stream: StreamId
    stage: StreamId
    schema_version: int
    ranges: tuple[Range, ...]
    sifted: Sifted | None = None
    store: int = 0

    def move(self, source: Site, target: Site, porter: Porter) -> None:
        """Raises as `Mover.move`."""
        with target.catalog.reading() as snapshot:
            schemas = [snapshot.schema(self.stage, version) for version in range(1, self.schema_version + 1)]
        cargo = Cargo(source, self.stream, schemas)
        how = (porter.control, porter.hold, porter.gauge, porter.moved)
        Mover(cargo, target, self.stage, *how, sieve=self.sifted).move(self.ranges)


class Carrier(Protocol):
    """Moves bundles somewhere, and returns when all are moved, or some have been stopped. May move one several times, or
    in several places at once: it is appended once."""

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Raises what moving raises."""
        ...


def carry(bundle: Bundle, source: Site, target: Site, *, moved: Moved = lambda _events, _size: None) -> bool:
    """Move a bundle; False where the job was stopped meanwhile. Raises as `Bundle.move`."""
    control = Control(target, bundle.job, bundle.owner)
    hold = Hold.resumed(target.catalog, target.runtime, bundle.lease)
    try:
        bundle.move(source, target, Porter(control, hold, Gauge(target.runtime.tasks), moved))
    except Stopped:
        return False
    return True
