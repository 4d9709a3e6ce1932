"""A real Spark cluster: standalone master and two workers, each a process, with PostgreSQL and S3 behind the store.

What is killed in mid-run — driver, executor, worker, master — must leave exactly the results of an undisturbed run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anabranch as ab
from tests import s3_server
from tests.postgres_server import drop
from tests.postgres_server import fresh_url as fresh_catalog
from tests.spark.clusters import Cluster, kill, running_cluster
from tests.spark.pipelines import COUNTS, SCHEMA, SOURCE, counted, expected, put, rows
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

_SQL = COUNTS + "; CREATE STREAM out.copy AS SELECT device, at, celsius FROM STREAM iot.sensors"
_EVENTS = 800
_BY = 20  # events a commit
_LATE_S = 5  # the watermark of COUNTS
_RUN_S = 300.0
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

_READ = """
import sys
from anabranch.spark import session
spark = session(name="reads", **{"spark.task.maxFailures": "1"})
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
try:
    print(spark.read.format("anabranch").options(**options).load().count())
except Exception as exc:
    from anabranch.spark.explain import explain
    print("told:", explain(exc))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    catalog, bucket = fresh_catalog(), f"anabranch-cluster-{os.getpid()}"
    made = urllib.request.Request(f"http://127.0.0.1:{s3_server.emulator().port}/{bucket}", method="PUT")
    with urllib.request.urlopen(made, timeout=PATIENCE_S):
        pass
    with ab.connect(catalog, blobs=s3_server.fresh_url(bucket=bucket), create=True) as opened:
        opened.scopes.create("iot")
        opened.streams.create(SOURCE, schema=SCHEMA, key="device", time="at", scaling=2)
        (tmp_path / "p.sql").write_text(_SQL)
        yield opened
    drop(catalog)


class Driver:
    """`anabranch pipeline run` against the cluster, in a process group of its own."""

    def __init__(self, cluster: Cluster, store: ab.Store, folder: Path, *options: str) -> None:
        places = store.addresses
        assert places is not None and places.blobs is not None
        command = [sys.executable, "-m", "anabranch.cli.main", "--blobs", places.blobs]
        command += ["pipeline", "run", str(folder / "p.sql"), "--quiet", *options]
        self.log = folder / f"driver-{len(list(folder.iterdir()))}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder, env={**cluster.environment, "ANABRANCH_STORE": places.url}, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def told(self) -> str:
        """What it printed."""
        return self.log.read_text()

    def kill(self) -> None:
        """kill -9 to Python and Java at once, as where the machine is lost."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


class Feed:
    """Writes the events, a commit at a time, while something is waited for."""

    def __init__(self, store: ab.Store) -> None:
        self._store = store
        self._written = 0

    def until(self, true: Callable[[], object], driver: Driver, *, stop: int) -> None:
        """Write on, up to event `stop`, until something is true."""

        def true_by_now() -> bool:
            assert driver.process.poll() is None, driver.told()
            if self._written < stop:
                self.write()
            return bool(true())

        until(true_by_now, _RUN_S)

    def on(self, driver: Driver) -> None:
        """Write some more, until 60 more are published than now."""
        at = copied(self._store)
        self.until(lambda: copied(self._store) >= at + 60, driver, stop=at + 140)

    def write(self) -> None:
        """One commit."""
        put(self._store, range(self._written, self._written + _BY))
        self._written += _BY

    def finish(self) -> None:
        """All that are missing."""
        while self._written < _EVENTS:
            self.write()


def copied(store: ab.Store) -> int:
    """How many events the stateless statement has published."""
    return store.cuts.distance("out/copy").events if store.streams.exists("out/copy") else 0


def test_a_pipeline_goes_on_exactly_when_executor_worker_master_and_driver_are_killed(
    cluster: Cluster, store: ab.Store, tmp_path: Path
) -> None:
    for _ in range(2):
        cluster.start_worker()
    feed = Feed(store)
    driver = Driver(cluster, store, tmp_path, "--events-max", "60")
    try:
        feed.until(lambda: copied(store) >= 60 and len(cluster.executors()) == 2, driver, stop=200)

        kill(cluster.executors()[0])
        feed.on(driver)

        cluster.kill_master()
        feed.on(driver)  # it has its executors
        cluster.start_master()
        before = set(cluster.executors())
        kill(min(before))
        feed.until(lambda: set(cluster.executors()) - before, driver, stop=0)  # given by the new master

        cluster.kill_worker()
        feed.on(driver)
        assert copied(store) < _EVENTS, "the driver is to be killed in mid-run"
    finally:
        driver.kill()
    feed.finish()

    last = Driver(cluster, store, tmp_path, "--once")
    try:
        assert last.process.wait(_RUN_S) == 0, last.told()
    finally:
        if last.process.poll() is None:
            last.kill()
    assert counted(store) == expected(store, until=_EVENTS - 1 - _LATE_S)
    found = sorted((row["at"], row["device"], row["celsius"]) for row in rows(store, "out/copy"))
    assert found == sorted((row["at"], row["device"], row["celsius"]) for row in rows(store, SOURCE))
    assert len(found) == _EVENTS
    assert list(store.check()) == []


def read(cluster: Cluster, folder: Path, **options: str) -> list[str]:
    """What a program on the cluster prints that counts a stream's events, or fails."""
    words = [word for pair in options.items() for word in pair]
    done = subprocess.run(
        [sys.executable, "-c", _READ, *words],
        cwd=folder, env=cluster.environment, capture_output=True, text=True, timeout=_RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_executors_that_do_not_see_the_store_say_so_in_one_sentence(
    cluster: Cluster, store: ab.Store, tmp_path: Path
) -> None:
    host = socket.gethostname()
    cluster.stop_workers()
    for _ in range(2):
        cluster.start_worker(without=_KEYS)
    # For the driver, and for what it starts, this names the folder it works in; for an executor, another one: there the
    # store is not to be seen, as on another machine.
    with ab.connect(tmp_path / "river", create=True) as local:
        local.scopes.create("s")
        local.streams.create("s/in")
        local.writer("s/in").write(b"x").result()
    (told,) = read(cluster, tmp_path, path="/proc/self/cwd/river", stream="s/in")
    assert told == (
        f"told: the Spark worker on {host} does not see the store's folder /proc/self/cwd/river: every machine of the job "
        "must see it under this path, or the store must be in PostgreSQL and S3"
    )

    places = store.addresses
    assert places is not None and places.blobs is not None
    put(store, range(20_000))  # more than lies inline in the catalog
    (told,) = read(cluster, tmp_path, path=places.url, blobs=places.blobs, stream=SOURCE)
    assert told.startswith(
        f"told: the Spark worker on {host} has no AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY in its environment, from which "
        "the driver has its credentials: "
    )
    assert "tester" not in told and "a-very-secret-key" not in told
