"""The ports that a store is composed from, passed on as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.errors import InvalidArgument
from anabranch.runtime.clock import Clock, SystemClock
from anabranch.runtime.ids import Ids, SystemIds
from anabranch.runtime.process import this_process
from anabranch.runtime.sealing import Sealer
from anabranch.runtime.settings import Settings
from anabranch.runtime.tasks import Tasks, ThreadTasks
from anabranch.runtime.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock, randomness, tasks and settings; the sealer of an encrypted store's bytes, and the tracing of a store that
    has a tracer provider. `process` is the name of this process for display.

    An open store takes the wall time from its catalog (`Catalog.clock`), so that all its processes have one clock, and
    only the monotonic time from `clock`. `catalog_clock`, if given, stands in for the catalog's clock: for tests and
    simulations, where time passes as they say."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    tasks: Tasks = field(default_factory=ThreadTasks)
    settings: Settings = field(default_factory=Settings)
    sealer: Sealer | None = None
    tracing: Tracing | None = None
    catalog_clock: Clock | None = None
    process: str = field(default_factory=this_process)

    def __post_init__(self) -> None:
        """Raises InvalidArgument for settings that are none."""
        if not isinstance(self.settings, Settings):
            raise InvalidArgument(f"expected the settings as Settings, got {type(self.settings).__name__}")
