"""How a call has its job carried out."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.log.watch import Watch
from anabranch.streams.jobs.carry import Carrier


class How(NamedTuple):
    """Under which request id it is made, how many bundles are in flight, who moves them where that is somebody else, and who
    hears of it."""

    request: str | None
    window: int
    carrier: Carrier | None
    progress: Watch
