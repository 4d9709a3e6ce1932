"""The host of deployed queries in a process of its own, because Spark's drivers are children of that process."""

from __future__ import annotations

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.processes.supervisor import SupervisedProcess

__all__ = ["QueryHostProcess"]


class QueryHostProcess:
    """The host of a broker. A process that ends by itself is replaced; its queries continue with the new one."""

    name = "queries"

    def __init__(self, settings: ServerSettings, counters: Counters, *, slots: int, slot: int) -> None:
        order = {
            "front_end": "queries",
            "settings": settings.model_dump(mode="json"),
            "slots": slots,
            "slot": slot,
            "counters": counters.descriptor,
        }
        self._process = SupervisedProcess(
            "the host of queries", order, (counters.descriptor,), replaced=counters.restarted
        )

    def start(self) -> str:
        return str(self._process.start()["address"])

    def failed(self) -> str | None:
        return self._process.failed()

    def drain(self, seconds: float) -> bool:
        return self._process.drain(seconds)

    def stop(self) -> None:
        self._process.stop()
