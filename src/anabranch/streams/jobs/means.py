"""What a run of a job works with, and asking again for what may have been done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anabranch import limits
from anabranch.errors import AppendUncertain
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch
from anabranch.runtime.tasks import Tasks
from anabranch.streams.jobs.carry import Carrier
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.gauge import Gauge
from anabranch.streams.jobs.site import Site
from anabranch.streams.jobs.window import Window

_PAUSE_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Means:
    """The parts of a run: the stores, who it is, how much it may do at a time and holds, its lease, who moves its bytes
    where that is somebody else, and who hears of it. `changed` is called when a stream was made."""

    source: Site
    target: Site
    control: Control
    window: Window
    gauge: Gauge
    hold: Hold
    carrier: Carrier | None
    progress: Watch
    changed: Callable[[], None]


def insist(tasks: Tasks, act: Callable[[], T]) -> T:
    """Act, and act again where the answer was lost: `act` finds what it has done before. Raises AppendUncertain after
    `limits.REQUEST_TRIES_MAX` times, and what `act` raises."""
    tries = 0
    while True:
        try:
            return act()
        except AppendUncertain:
            tries += 1
            if tries == limits.REQUEST_TRIES_MAX:
                raise
            tasks.sleep(_PAUSE_S * 2**tries)
