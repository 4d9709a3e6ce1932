"""Parts of a broker in processes of their own: gRPC, whose runtime must not share a process with Arrow Flight's, and the host
of deployed queries, whose drivers are children of its process."""

from __future__ import annotations

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.processes.supervisor import SupervisedProcess


class FrontEndProcess:
    """The part `name` of a broker, called `title` in messages. A process that ends by itself is replaced. `listener` is the
    descriptor of a listening socket that it serves."""

    def __init__(
        self,
        name: str,
        title: str,
        settings: ServerSettings,
        counters: Counters,
        *,
        slots: int,
        slot: int,
        listener: int | None = None,
    ) -> None:
        order = {
            "front_end": name,
            "settings": settings.model_dump(mode="json"),
            "slots": slots,
            "slot": slot,
            "counters": counters.descriptor,
            "listener": listener,
        }
        self.name = name
        inherited = (counters.descriptor,) if listener is None else (counters.descriptor, listener)
        self._process = SupervisedProcess(title, order, inherited, replaced=counters.restarted)

    def start(self) -> str:
        return str(self._process.start()["address"])

    def failed(self) -> str | None:
        return self._process.failed()

    def drain(self, seconds: float) -> bool:
        return self._process.drain(seconds)

    def stop(self) -> None:
        self._process.stop()


class GrpcProcess(FrontEndProcess):
    """The gRPC front end of a broker. A new process has the port of the one that it replaces."""

    def start(self) -> str:
        address = super().start()
        self._process.order["settings"]["grpc_port"] = int(address.rpartition(":")[2])
        return address
