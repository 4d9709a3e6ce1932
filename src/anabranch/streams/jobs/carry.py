"""Carrying the bundles of a job elsewhere: in other processes, that know nothing of it but what travels."""

from __future__ import annotations

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
from anabranch.streams.jobs.site import Site


@dataclass(frozen=True, slots=True)
class Bundle:
    """Ranges of one source of a job, and all that moving them takes: a small value that travels."""

    job: str
    owner: str
    lease: Lease
    stream: StreamId
    stage: StreamId
    schema_version: int
    ranges: tuple[Range, ...]


class Carrier(Protocol):
    """Moves bundles somewhere, and returns when all are moved, or some have been stopped. May move one several times, or
    in several places at once: it is appended once."""

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Raises what moving raises."""
        ...


def carry(bundle: Bundle, source: Site, target: Site, *, moved: Moved = lambda _events, _size: None) -> bool:
    """Move a bundle; False where the job was stopped meanwhile. Raises as `Mover.move`."""
    control = Control(target, bundle.job, bundle.owner)
    hold = Hold.resumed(target.catalog, target.runtime, bundle.lease)
    with target.catalog.reading() as snapshot:
        schemas = [snapshot.schema(bundle.stage, version) for version in range(1, bundle.schema_version + 1)]
    cargo = Cargo(source, bundle.stream, schemas)
    mover = Mover(cargo, target, bundle.stage, control, hold, Gauge(target.runtime.tasks), moved)
    try:
        mover.move(bundle.ranges)
    except Stopped:
        return False
    return True
