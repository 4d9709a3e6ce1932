"""The server of the figures on brokers: a process of its own, whose CPU seconds and memory are read from the system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_TICKS = os.sysconf("SC_CLK_TCK")
# The floor: the empty handler of bare Starlette on uvicorn, as the broker configures it.
_BARE = """
import socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def empty(request):
    await request.body()
    return Response(b"{}", media_type="application/json")
door = socket.create_server(("127.0.0.1", 0), backlog=2048)
print('{"http": "http://127.0.0.1:%d"}' % door.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/v1/streams/bench/events/events", empty, methods=["POST"])])
server = uvicorn.Server(uvicorn.Config(app, http="httptools", loop="uvloop", log_config=None, access_log=False))
server.run(sockets=[door])
"""


class ServedProcess:
    """A server under measurement; `addresses` are what it printed."""

    def __init__(self, command: list[str], folder: Path) -> None:
        with open(folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "server.log").read_text())
        self.addresses: dict[str, Any] = json.loads(line)

    @classmethod
    def broker(cls, store: Path) -> ServedProcess:
        """`anabranch serve`, without its access log."""
        options = ["--json", "--flight-port", "0", "--http-port", "0", "--grpc-port", "0", "--set", "access_log=false"]
        command = [sys.executable, "-m", "anabranch.cli.main", "serve", "--store", str(store), *options]
        return cls([*command, "--set", "connections_max=8192", "--set", "grpc=false"], store.parent)

    @classmethod
    def bare(cls, folder: Path) -> ServedProcess:
        """Bare Starlette."""
        return cls([sys.executable, "-c", _BARE], folder)

    @property
    def port(self) -> int:
        """The port of HTTP."""
        return int(urlsplit(self.addresses["http"]).port or 0)

    def cpu_s(self) -> float:
        """The CPU seconds it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mb(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def __enter__(self) -> ServedProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()
