"""gRPC in a process of its own, because its runtime must not share a process with Arrow Flight's."""

from __future__ import annotations

from typing import Final

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.processes.supervisor import SupervisedProcess

__all__ = ["GrpcProcess"]

_SLOT: Final = 1  # among the counters


class GrpcProcess:
    """The gRPC front end of a broker. A process that ends by itself is replaced, on the same port."""

    name = "grpc"

    def __init__(self, settings: ServerSettings, counters: Counters, *, slots: int) -> None:
        order = {
            "front_end": "grpc",
            "settings": settings.model_dump(mode="json"),
            "slots": slots,
            "slot": _SLOT,
            "counters": counters.descriptor,
        }
        self._process = SupervisedProcess("gRPC", order, (counters.descriptor,), replaced=counters.restarted)

    def start(self) -> str:
        address = str(self._process.start()["address"])
        self._process.order["settings"]["grpc_port"] = int(address.rpartition(":")[2])
        return address

    def failed(self) -> str | None:
        return self._process.failed()

    def drain(self, seconds: float) -> bool:
        return self._process.drain(seconds)

    def stop(self) -> None:
        self._process.stop()
