"""A host of deployed queries as a process of its own, and the results of a query counted by DuckDB."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import duckdb
import psutil
import pyarrow as pa

import anabranch as ab
from anabranch.spark.pipelines import record
from tests import s3_server
from tests.postgres_server import drop, fresh_url
from tests.spark.pipelines import BASE, COUNTS, SCHEMA, SECOND, SOURCE, new_store, put

PATIENCE_S = 400.0
SQL = COUNTS + "; CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
# Java starts in half the time if it compiles less.
QUICK = ("--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1")


@contextmanager
def store_on(catalog: str, folder: Path) -> Iterator[ab.Store]:
    """A store with an empty stream of measurements: `sqlite` in a folder, `postgres` with its blobs in one, or `postgres+s3`."""
    if catalog == "sqlite":
        with new_store(folder / "river") as opened:
            yield opened
        return
    url = fresh_url()
    blobs = s3_server.fresh_url() if catalog.endswith("s3") else folder / "blobs"
    with ab.connect(url, blobs=blobs, create=True) as opened:
        opened.scopes.create("iot")
        opened.streams.create(SOURCE, schema=SCHEMA, key="device", time="at", scaling=2)
        yield opened
    drop(url)


class HostProcess:
    """`anabranch queries serve` over a store, with its log in a file."""

    def __init__(self, store: ab.Store, log: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment` in place of this process's own."""
        self.log = log
        command = [
            sys.executable,
            "-m",
            "anabranch.cli.main",
            "queries",
            "serve",
            *_address(store),
            *options,
            *QUICK,
        ]
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def wait(self, done: Callable[[], object]) -> None:
        """Wait until it is so, while the host lives."""

        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)  # what is waited for reads whole streams, and the host needs the processor too

    def freeze(self, driver: int) -> None:
        """SIGSTOP, of the host and of all processes of its driver."""
        os.kill(self.pid, signal.SIGSTOP)
        os.killpg(driver, signal.SIGSTOP)

    def thaw(self, driver: int) -> None:
        """SIGCONT, of the same."""
        os.killpg(driver, signal.SIGCONT)
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, of the host alone."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """At the end of a test, however it went."""
        if self._process.poll() is None:
            self.stop()


class Load:
    """20 events a commit, a second apart in event time, in a thread until it is ended. A commit every tenth of a second,
    or with a `chance` two to five times a second."""

    def __init__(self, store: ab.Store, *, begin: int = 0, chance: Random | None = None) -> None:
        self._store = store
        self._chance = chance
        self._writing = threading.Lock()
        self._ending = threading.Event()
        self.written = begin
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.1 if self._chance is None else self._chance.uniform(0.2, 0.5)):
            with self._writing:
                put(self._store, range(self.written, self.written + 20))
                self.written += 20

    @contextmanager
    def paused(self) -> Iterator[int]:
        """Writes nothing meanwhile. Yields how many events there are."""
        with self._writing:
            yield self.written

    def end(self) -> int:
        """Returns how many events there are."""
        self._ending.set()
        self._thread.join()
        return self.written


def _address(store: ab.Store) -> list[str]:
    found = store.addresses
    if found is None or found.blobs is None:
        return ["--store", store.url]
    return ["--store", found.url, "--blobs", found.blobs]


def driver_of(store: ab.Store, query: str) -> int | None:
    """The process that runs the query, if one does. One that has ended with its host is named until another takes over."""
    holder = record.find(store.catalog, query).holder
    return holder.pid if holder is not None and psutil.pid_exists(holder.pid) else None


def kill_driver(store: ab.Store, query: str) -> int:
    """kill -9 of the driver of a query; returns its process id."""
    pid = driver_of(store, query)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def by_duckdb(store: ab.Store, *, until_s: float) -> Counter[tuple[int, str, int, float]]:
    """What the query COUNTS gives undisturbed: each window that ends at `until_s` (seconds since BASE) or earlier."""
    with store.reader(SOURCE) as reader:
        events = pa.Table.from_batches(reader.batches(), reader.schema)
    windows = f"""
        SELECT (epoch_us("at") - {BASE}) // {10 * SECOND} * 10 AS opened, device, count(*) AS n, sum(celsius) AS total
        FROM events GROUP BY 1, 2
    """
    found = duckdb.from_arrow(events).query("events", f"SELECT * FROM ({windows}) WHERE opened + 10 <= {until_s}")
    assert found is not None
    return Counter({(int(opened), device, n, total): 1 for opened, device, n, total in found.fetchall()})
