"""Processes under torture. What one is told it tells on at once, a line per `write(2)`: nothing it said dies with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from anabranch.testing.record import Recorder
from torture.power import watch

_NURSERY: Final = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload(["__main__", "anabranch.store", "psycopg", "pyarrow.parquet", "torture.workers"])

Tell = Callable[..., None]
Work = Callable[..., None]


class Child:
    """A process that does `work(tell, *arguments)` until it is told to stop, ends, or is killed."""

    def __init__(self, folder: Path, name: str, work: Work, *arguments: Any, journal: Path | None = None) -> None:
        """`journal`: where it notes what a power cut would take; see `torture.power`."""
        self.name = name
        self._told = folder / f"{name}.told"
        self._told.touch()
        self._history = folder / f"{name}.history"
        # The nursery is as old as the first child: what the environment was told since is handed on.
        what = (work, self._told, arguments, journal, dict(os.environ))
        self._process = _NURSERY.Process(target=_live, args=what, name=name, daemon=True)
        self._process.start()

    @property
    def alive(self) -> bool:
        """True until it has ended."""
        return self._process.is_alive()

    def lines(self) -> Iterator[list[str]]:
        """What it told so far, as words. The last line may have been cut short by its death."""
        return (words for _, words in self.stamped())

    def stamped(self) -> Iterator[tuple[int, list[str]]]:
        """The same, each with when it was told, in ns of the machine's monotonic clock."""
        with self._told.open() as file:
            for line in file:
                if line.endswith("\n"):
                    stamp, *words = line.split()
                    yield int(stamp), words

    def history(self) -> Iterator[str]:
        """What its recorder wrote down; see `testing.record.load`."""
        if self._history.exists():
            with self._history.open() as file:
                yield from file

    def send(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self._process.pid is not None and self.alive:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.join()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False if it goes on after `timeout_s` seconds."""
        self._process.join(timeout_s)
        return not self.alive


def _live(
    work: Work, told: Path, arguments: tuple[Any, ...], journal: Path | None, environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    # Ctrl-C is for the conductor, who stops its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if journal is not None:
        watch(journal)
    file = os.open(told, os.O_WRONLY | os.O_APPEND)
    lock = threading.Lock()

    def tell(*words: object) -> None:
        line = f"{time.monotonic_ns()} " + " ".join(str(word).replace("\n", " ") for word in words) + "\n"
        with lock:
            os.write(file, line.encode())

    try:
        work(tell, *arguments)
    except BaseException as exc:
        tell("raised", type(exc).__name__, exc)
        raise
    tell("done")


def recorder(name: str, folder: Path) -> Recorder:
    """What a process does to the store, written down beside what it tells, a `write(2)` a line."""
    file = os.open(folder / f"{name}.history", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return Recorder(time.monotonic_ns, name=name, sink=lambda line: os.write(file, line.encode()))
