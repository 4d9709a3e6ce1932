"""Common to all peers: a server process that is started, waited for and stopped."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

_STOP_S = 10.0


class NotInstalled(Exception):
    """The peer can't be measured here; the text says what is missing."""


class Peer(ABC):
    """A stream of another system. Enter the context to start its server; `write` and `read` return seconds."""

    name: ClassVar[str]
    durability: ClassVar[str]  # when acknowledged events are on disk
    write_style: ClassVar[str]
    read_style: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> None:
        """Starts the server and connects. Raises NotInstalled."""

    @abstractmethod
    def stop(self) -> None:
        """Disconnects."""

    @abstractmethod
    def version(self) -> str:
        """Returns the server's version."""

    @abstractmethod
    def write(self, bodies: Sequence[bytes], keys: Sequence[str]) -> float:
        """Appends the events one call each, pipelined, until all are acknowledged."""

    @abstractmethod
    def read(self) -> tuple[int, float]:
        """Reads all events as Python objects, touching key and payload. Returns their number, and seconds."""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        try:
            self.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with suppress(Exception):  # the server is stopped in any case
                self.stop()
        finally:
            self._kill()

    def _launch(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        with open(self._folder / "server.log", "wb") as log:
            self._server = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env
            )

    def _until(self, ready: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Repeats the call until it raises nothing."""
        deadline = time.monotonic() + timeout_s
        while True:
            assert self._server is not None
            if self._server.poll() is not None:
                raise NotInstalled(f"its server ended at once: {self._last_words()}")
            try:
                ready()
            except Exception as exc:
                if time.monotonic() > deadline:
                    raise NotInstalled(f"its server did not answer within {timeout_s:g} s ({exc})") from exc
                time.sleep(0.05)
            else:
                return

    def _last_words(self) -> str:
        lines = (self._folder / "server.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without a word"

    def _kill(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.terminate()
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    """Returns a port of the loopback interface that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
