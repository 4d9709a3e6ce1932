"""A driver as its host sees it: a child process, its pipes, and the folder for all files that it leaves behind."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from anabranch import limits
from anabranch.spark.queries.protocol import MessagePipe, parse_line
from anabranch.store import StoreAddresses

__all__ = ["DriverEvent", "DriverOwner", "DriverProcess"]

_LOG: Final = "driver.log"
_LOG_LINES: Final = 5
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

DriverEvent = tuple["DriverProcess", dict[str, Any] | None]
"""What a driver said; None: it has ended."""


@dataclass(frozen=True, slots=True)
class DriverOwner:
    """Which queries a driver may run: all of a group, or only the one `query`, or only the one `version` of it, so that
    no process ever has the code of two versions."""

    group: str
    query: str | None = None
    version: int | None = None


class DriverProcess:
    """Starts a driver, which with `warm` first runs a small query of its own. Its messages go to `events`, and so does its
    end."""

    def __init__(
        self,
        addresses: StoreAddresses,
        conf: Mapping[str, str],
        events: queue.SimpleQueue[DriverEvent],
        *,
        warm: bool,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-driver-"))
        # Spark and Java keep temporary files, which a killed driver can't remove; its host does.
        temporary = {"TMPDIR": str(self._folder), "SPARK_LOCAL_DIRS": str(self._folder)}
        java = f"{conf.get(_JAVA_OPTIONS, '')} -Djava.io.tmpdir={self._folder}".strip()
        with open(self._folder / _LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anabranch.spark.queries.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **temporary},
                start_new_session=True,
                text=True,
                encoding="utf-8",
            )
        self.pid = self._process.pid
        self.ready = False
        self.on_cluster = False  # it has executors on other machines, which it has to end itself
        self.owner: DriverOwner | None = None  # None: it is a spare one
        self._how: str | None = None  # how it ended; None while it runs
        self._why: str | None = None  # the message about its end
        self._events = events
        self._lines = MessagePipe(self._process.stdin)
        settings = {**conf, _JAVA_OPTIONS: java}
        self.send(store=asdict(addresses), conf=settings, warm=warm, folder=str(self._folder))
        threading.Thread(target=self._listen, name=f"driver-{self.pid}", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Send a message to the driver."""
        self._lines.send(**message)

    def end(self, timeout_s: float = 0.0) -> str:
        """Ask the driver to end, kill it after `timeout_s`, and begin to remove its files. Returns how it ended, with
        the reason that it gave, or the last line of its log unless it was killed. A second call is harmless."""
        if self._how is not None:
            return self._how
        if timeout_s > 0:
            self.send(exit=True)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        code = self._process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # also Java and the Python workers of a driver that was killed
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(limits.TASK_END_S)
        self._lines.close()
        how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}: {self._last_line()}"
        if self._why is not None:
            how = f"because {self._why}"
        # Spark leaves many files; a take-over does not wait until they are removed.
        threading.Thread(target=shutil.rmtree, args=(self._folder, True), name=f"remove-{self.pid}").start()
        self._how = how
        return how

    def end_idle(self) -> None:
        """End a driver that runs nothing: at once, or on a cluster in the background, because it has to leave the
        cluster."""
        if not self.on_cluster:
            self.end()
            return
        leave_s = limits.DEPLOYMENT_LEAVE_S
        threading.Thread(target=self.end, args=(leave_s,), name=f"end-{self.pid}", daemon=True).start()

    def _last_line(self) -> str:
        with suppress(OSError), open(self._folder / _LOG, errors="replace") as log:
            return next((line.strip() for line in reversed(deque(log, _LOG_LINES)) if line.strip()), "")
        return ""

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                message = parse_line(line)
                if message.get("event") == "ending":
                    self._why = str(message.get("why"))
                else:
                    self._events.put((self, message))
        self._events.put((self, None))
