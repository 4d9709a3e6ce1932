"""HTTP in several processes that accept on one listening socket."""

from __future__ import annotations

import socket

from anabranch.server.config import ServerSettings
from anabranch.server.counters import Counters
from anabranch.server.drain import drain_together
from anabranch.server.http_front_end import listen, shown_url
from anabranch.server.processes.front_end_process import FrontEndProcess


class HttpWorkers:
    """The HTTP front end of a broker with several workers. The main process holds the socket, so that connections wait
    in its queue while a worker is replaced. `first_slot` is that of the first worker among the counters."""

    name = "http"

    def __init__(self, settings: ServerSettings, counters: Counters, *, slots: int, first_slot: int) -> None:
        self._settings = settings
        self._counters = counters
        self._slots = slots
        self._first_slot = first_slot
        self._listener: socket.socket | None = None
        self._workers: list[FrontEndProcess] = []

    def start(self) -> str:
        settings = self._settings
        self._listener = listen(settings.host, settings.http_port)
        self._listener.set_inheritable(True)
        for number in range(settings.workers):
            worker = FrontEndProcess(
                *("http", f"HTTP worker {number + 1}", settings, self._counters),
                slots=self._slots,
                slot=self._first_slot + number,
                listener=self._listener.fileno(),
            )
            self._workers.append(worker)
            worker.start()
        return shown_url(self._listener, tls=settings.tls)

    def failed(self) -> str | None:
        return next((problem for worker in self._workers if (problem := worker.failed()) is not None), None)

    def drain(self, seconds: float) -> bool:
        if self._listener is not None:
            self._listener.close()
        return drain_together(self._workers, seconds)

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for worker in self._workers:
            worker.stop()
