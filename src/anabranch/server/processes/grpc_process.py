"""gRPC in a process of its own, because its runtime must not share a process with Arrow Flight's."""

from __future__ import annotations

from typing import Final

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.processes.front_end_process import FrontEndProcess

__all__ = ["GrpcProcess"]

_SLOT: Final = 1  # among the counters


class GrpcProcess(FrontEndProcess):
    """The gRPC front end of a broker. A process that ends by itself is replaced, on the same port."""

    def __init__(self, settings: ServerSettings, counters: Counters, *, slots: int) -> None:
        super().__init__("grpc", "gRPC", settings, counters, slots=slots, slot=_SLOT)

    def start(self) -> str:
        address = super().start()
        self._process.order["settings"]["grpc_port"] = int(address.rpartition(":")[2])
        return address
