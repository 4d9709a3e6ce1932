"""A host of deployed queries as a process of its own, under a steady load, for benchmarks of queries."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pyarrow as pa

from anabranch.model.columns import TIME_TYPE

PATIENCE_S: Final = 300.0
EVENTS: Final = pa.schema([("device", pa.string()), ("at", TIME_TYPE)])
LOAD: Final = "100 events each 200 ms, 20 keys"


@contextmanager
def serving(url: str, log: Path, *, spares: int) -> Iterator[int]:
    """`anabranch queries serve` over the store; yields its process id."""
    command = [sys.executable, "-m", "anabranch.cli.main", "queries", "serve", "--store", url, "--spares", str(spares)]
    with open(log, "wb") as output:
        host = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield host.pid
    finally:
        host.terminate()
        host.wait(PATIENCE_S)


@contextmanager
def load(write: Callable[[pa.Table], object]) -> Iterator[None]:
    """Write `LOAD` meanwhile, with event times that go ten times as fast as the clock."""
    ending = threading.Event()

    def run() -> None:
        random, at = np.random.default_rng(1), 0
        while not ending.wait(0.2):
            devices = pa.array([f"device-{number}" for number in random.integers(0, 20, 100)])
            times = pa.array(np.sort(random.integers(at, at + 2_000_000, 100)), TIME_TYPE)
            write(pa.table({"device": devices, "at": times}, EVENTS))
            at += 2_000_000

    writing = threading.Thread(target=run)
    writing.start()
    try:
        yield
    finally:
        ending.set()
        writing.join()


def wait_until(done: Callable[[], bool]) -> None:
    """Look again and again, which leaves the processor to the drivers."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "the queries did not go on"
        time.sleep(0.2)


def has_idle_spare(host: int, driver: int, count: int) -> bool:
    """True if the host has so many drivers beside this one, one of which has nothing to do, not even to start."""
    others = [each for each in psutil.Process(host).children() if each.pid != driver and _is_driver(each)]
    if len(others) < count or any(time.time() - each.create_time() < 10 for each in others):
        return False
    trees = [[each, *each.children(recursive=True)] for each in others]
    _ = [_cpu_percent(process) for process in itertools.chain(*trees)]  # the start of what is measured next
    time.sleep(2)
    return min(sum(map(_cpu_percent, tree)) for tree in trees) < 10


def _cpu_percent(process: psutil.Process) -> float:
    """Since the last call; 0 of one that has ended."""
    try:
        return process.cpu_percent()
    except psutil.Error:
        return 0.0


def _is_driver(process: psutil.Process) -> bool:
    try:
        return "anabranch.spark.queries.driver" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False
