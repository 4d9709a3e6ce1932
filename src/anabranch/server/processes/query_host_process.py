"""The host of deployed queries in a process of its own, because Spark's drivers are children of that process."""

from __future__ import annotations

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.processes.front_end_process import FrontEndProcess

__all__ = ["QueryHostProcess"]


class QueryHostProcess(FrontEndProcess):
    """The host of a broker. A process that ends by itself is replaced; its queries continue with the new one."""

    def __init__(self, settings: ServerSettings, counters: Counters, *, slots: int, slot: int) -> None:
        super().__init__("queries", "the host of queries", settings, counters, slots=slots, slot=slot)
