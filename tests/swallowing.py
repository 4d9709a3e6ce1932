"""A TCP proxy on loopback that loses bytes without saying so, as a network does whose cable is pulled."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum


class Loss(Enum):
    """Which bytes are taken and never passed on."""

    NOTHING = "nothing"
    REQUESTS = "what the client sends"
    ANSWERS = "what the server sends"
    ALL = "both"


class SwallowingProxy:
    """Passes bytes to `port` on this machine and back, until it is told to swallow them. Bytes that were swallowed are
    lost for good, also once it passes bytes again: connections on which some are missing stay silent."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._door = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._door.getsockname()[1]
        self._lock = threading.Lock()
        self._loss = Loss.NOTHING
        self._after: int | None = None
        self._half_close = False
        self._silent: set[int] = set()
        self.swallowed = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def lose(self, loss: Loss, *, after: int = 0) -> None:
        """Swallow from now on, or once so many more bytes have been passed on in those directions."""
        with self._lock:
            self._loss, self._after = loss, after

    def half_close(self) -> None:
        """Have the next bytes of a server ended by a FIN towards the client, while its own requests are swallowed."""
        with self._lock:
            self._half_close = True

    def heal(self) -> None:
        """Pass bytes on again; new connections work."""
        with self._lock:
            self._loss, self._half_close = Loss.NOTHING, False

    def close(self) -> None:
        """Take no more connections. Shut down first: whoever waits in `accept` would otherwise go on doing so, and after a
        stop of the process (SIGSTOP) on whatever has the number of the file by then, another proxy for one."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            number += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            for source, target, answers in ((client, server, False), (server, client, True)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(number, source, target, answers), daemon=True).start()

    def _pump(self, number: int, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                passed = self._passed(number, data, answers)
                if passed:
                    target.sendall(passed)
                if answers and self._half_close:
                    target.shutdown(socket.SHUT_WR)
            if number not in self._silent:
                target.shutdown(socket.SHUT_RDWR)

    def _passed(self, number: int, data: bytes, answers: bool) -> bytes:
        with self._lock:
            wanted = {Loss.ALL, Loss.ANSWERS if answers else Loss.REQUESTS}
            if number in self._silent:
                data = b""
            elif self._loss in wanted or (self._half_close and not answers):
                kept = min(len(data), self._after or 0)
                self._after = (self._after or 0) - kept
                if kept < len(data):
                    self._silent.add(number)
                    self.swallowed += len(data) - kept
                data = data[:kept]
            return data
