"""Processes under torture. Each writes its log at once, one line per `write(2)`: no logged line is lost when it is
killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.simulation.record import Recorder
from torture.power import watch

_NURSERY: Final = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload(["__main__", "anabranch.store", "psycopg", "pyarrow.parquet", "torture.workers"])

Log = Callable[..., None]
Work = Callable[..., None]


class Child:
    """A process that runs `work(tell, *arguments)` until it is stopped, ends, or is killed."""

    def __init__(self, folder: Path, name: str, work: Work, *arguments: Any, journal: Path | None = None) -> None:
        """`journal`: where it records its writes and syncs, for power cuts; see `torture.power`."""
        self.name = name
        self._logs = folder / f"{name}.told"
        self._logs.touch()
        self._history = folder / f"{name}.history"
        # The fork server has the environment of when the first child started, so the present one is passed on.
        what = (work, self._logs, arguments, journal, dict(os.environ))
        self._process = _NURSERY.Process(target=_run_child, args=what, name=name, daemon=True)
        self._process.start()

    @property
    def alive(self) -> bool:
        """True until it has ended."""
        return self._process.is_alive()

    def lines(self) -> Iterator[list[str]]:
        """Yields the lines logged so far, as words. The last line is left out if the process died while writing it."""
        return (words for _, words in self.stamped())

    def stamped(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the same, each with its time in ns of the machine's monotonic clock."""
        with self._logs.open() as file:
            for line in file:
                if line.endswith("\n"):
                    stamp, *words = line.split()
                    yield int(stamp), words

    def history(self) -> Iterator[str]:
        """Yields the lines of its recorder; see `tests.simulation.record.load`."""
        if self._history.exists():
            with self._history.open() as file:
                yield from file

    def send(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self._process.pid is not None and self.alive:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL, and waits until it has ended."""
        self.send(signal.SIGKILL)
        self._process.join()

    def join(self, timeout_s: float) -> bool:
        """Waits for its end; False if it still runs after `timeout_s` seconds."""
        self._process.join(timeout_s)
        return not self.alive


def _run_child(
    work: Work, told: Path, arguments: tuple[Any, ...], journal: Path | None, environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    # Ctrl-C is handled by the conductor, which stops its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if journal is not None:
        watch(journal)
    file = os.open(told, os.O_WRONLY | os.O_APPEND)
    lock = threading.Lock()

    def log(*words: object) -> None:
        line = f"{time.monotonic_ns()} " + " ".join(str(word).replace("\n", " ") for word in words) + "\n"
        with lock:
            os.write(file, line.encode())

    try:
        work(log, *arguments)
    except BaseException as exc:
        log("raised", type(exc).__name__, exc)
        raise
    log("done")


def recorder(name: str, folder: Path) -> Recorder:
    """Returns a recorder of a process's operations, written to a file beside its log, one `write(2)` per line."""
    file = os.open(folder / f"{name}.history", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return Recorder(time.monotonic_ns, name=name, sink=lambda line: os.write(file, line.encode()))
