"""The ports a store is composed from, handed on as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.runtime.clock import Clock, SystemClock
from anabranch.runtime.ids import Ids, SystemIds
from anabranch.runtime.process import this_process
from anabranch.runtime.sealing import Sealer
from anabranch.runtime.settings import Settings
from anabranch.runtime.tasks import Tasks, ThreadTasks


@dataclass(frozen=True, slots=True)
class Runtime:
    """Clock, chance, tasks and settings; and what seals the bytes of a store that is encrypted. `process` is what this
    process is called before people."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    tasks: Tasks = field(default_factory=ThreadTasks)
    settings: Settings = field(default_factory=Settings)
    sealer: Sealer | None = None
    process: str = field(default_factory=this_process)
