"""A broker as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cli.kit import environment
from tests.waiting import PATIENCE_S

# For a broker whose front end for gRPC nobody calls: that is a process of its own, as expensive as the rest of the broker.
NO_GRPC = ("--set", "grpc=false")


class BrokerProcess:
    """`anabranch serve` on free ports. `addresses` are what it printed once it served."""

    def __init__(self, store: Path | str, *options: str, folder: Path, **more: str) -> None:
        self.log = folder / "broker.log"
        command = [sys.executable, "-m", "anabranch.cli.main", "serve", "--store", str(store), "--json"]
        ports = [word for name in ("flight", "http", "grpc") for word in (f"--{name}-port", "0")]
        with open(self.log, "ab") as log:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [*command, *ports, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**more),
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(PATIENCE_S)
            raise AssertionError(self.log.read_text())
        self.addresses: dict[str, Any] = json.loads(line)

    @property
    def http(self) -> str:
        """The address of its HTTP front end."""
        return str(self.addresses["http"])

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """End it in order."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """kill -9, also to its worker processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def records(self) -> list[dict[str, Any]]:
        """The lines of its access log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
