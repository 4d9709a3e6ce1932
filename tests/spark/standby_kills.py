"""A deployed query with a hot standby under a steady load: who runs it, what of it is killed, and whether its results are
those of a run that nothing disturbed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import psutil
import pyarrow as pa

import anabranch as ab
from anabranch.spark.pipelines import record
from tests.spark.clusters import EXECUTOR
from tests.spark.hosts import SQL, HostProcess, Load, by_duckdb, driver_of
from tests.spark.pipelines import BASE, SECOND, counted, rows

_NAME = "counts"
_TRIGGER = "2s"  # so that two cores have time for the leader, its standby and the start of the next one
_PATIENCE_S = 900.0  # a standby takes minutes to be ready where a dozen of other processes want the processors
_LATE_S = 5  # the watermark of COUNTS
_SERVER = "anabranch.spark.session.worker_server"
_SOURCE = "source_runner"  # as the server names the process of a source
# As `anabranch.spark.pipelines.standby` begins the token of a run that took over. A start anew has another one.
_TOOK_OVER = "query:standby:"


class StandbyQuery:
    """The query SQL on some hosts. `chance` chooses the moments of what is killed; `new_host` starts one by a name."""

    def __init__(
        self, store: ab.Store, hosts: Sequence[HostProcess], chance: Random, new_host: Callable[[str], HostProcess]
    ) -> None:
        self.store = store
        self.chance = chance
        self._hosts = list(hosts)
        self._new_host = new_host
        store.queries.deploy(_NAME, SQL, standby="hot", trigger=_TRIGGER)
        self.load = Load(store, chance=Random(chance.random()))

    def close(self) -> None:
        """End the load and the hosts, however the test went."""
        self.load.end()
        for host in self._hosts:
            host.end()

    # who runs it

    @property
    def leader(self) -> int | None:
        """The process id of the driver that runs it."""
        return driver_of(self.store, _NAME)

    @property
    def standby(self) -> int | None:
        """The process id of the driver that was its hot standby last, as its log says a moment after its row does."""
        found = [re.fullmatch(r"driver (\d+) is its hot standby", line) for line in self.log()]
        return next((int(each[1]) for each in reversed(found) if each is not None), None)

    @property
    def took_over(self) -> bool:
        """True if the run is that of a standby which took over, and no start anew."""
        holder = record.find(self.store.catalog, _NAME).holder
        return holder is not None and holder.token.startswith(_TOOK_OVER)

    def hosts_of(self) -> tuple[HostProcess, HostProcess]:
        """The host that runs it, and the one that has its standby."""
        info = self.store.queries.get(_NAME)
        runs, follows = (
            next(each for each in self._hosts if text is not None and text.startswith(f"{each.pid}@"))
            for text in (info.host, info.standby_host)
        )
        return runs, follows

    def log(self) -> list[str]:
        """The lines of the query's log."""
        name = f"_store/query.{_NAME}"
        return [row["message"] for row in rows(self.store, name)] if self.store.streams.find(name) is not None else []

    @property
    def published(self) -> int:
        """How many events the statement without windows has published."""
        return self.store.cuts.distance("out/copy").events if self.store.streams.exists("out/copy") else 0

    @property
    def _closed(self) -> int:
        """How many results of windows are published."""
        return self.store.cuts.distance("out/counts").events if self.store.streams.exists("out/counts") else 0

    # waiting

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until it is so, while the hosts live."""
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, self._report()
            for host in self._hosts:
                assert host.lives, self._report()
            time.sleep(0.2)

    def wait_ready(self) -> None:
        """Wait until it runs, publishes, and a standby that is not its leader is ready."""
        self.wait(lambda: self._state() == ("running", "ready") and self.standby not in (None, self.leader))
        self.wait_published()

    def wait_followed(self, killed: int) -> None:
        """Wait until another standby than this one, which was killed, is ready. The row names that one until its lease ends."""
        self.wait(lambda: self.standby != killed)
        self.wait_ready()

    def wait_apart(self) -> None:
        """Wait until one host runs it and another has its standby."""

        def are_apart() -> bool:
            info = self.store.queries.get(_NAME)
            return None not in (info.host, info.standby_host) and info.host != info.standby_host

        self.wait(are_apart)

    def wait_published(self) -> None:
        """Wait until more is published than now."""
        before = self.published
        self.wait(lambda: self.published > before)

    def moment(self, longest_s: float = 2.0) -> None:
        """A while that chance chooses, within which a micro-batch of each statement begins and ends."""
        time.sleep(self.chance.uniform(0, longest_s))

    def wait_moment(self) -> tuple[int, int]:
        """Wait for a random moment at which a standby is ready. Returns the leader and the standby."""
        while True:
            self.wait_ready()
            leader, standby = self.leader, self.standby
            self.moment()
            # On a busy machine it may have fallen behind meanwhile.
            if leader is not None and standby is not None and self._state() == ("running", "ready"):
                return leader, standby

    def _state(self) -> tuple[str, str | None]:
        info = self.store.queries.get(_NAME)
        return info.state, info.standby_state

    def _report(self) -> str:
        texts = [str(self.store.queries.get(_NAME)), *self.log(), *(host.log.read_text() for host in self._hosts)]
        return "\n".join(texts)

    # kills

    def take_over(self, kill: Callable[[int], None]) -> None:
        """`kill` something of the leader at a random moment, without which it can't go on: the standby takes over."""
        leader, standby = self.wait_moment()
        kill(leader)
        self._check_taken_by(standby)

    def take_over_from_behind(self) -> None:
        """Kill the leader's driver when it has published batches that the standby has not even seen: stopped meanwhile."""
        leader, standby = self.wait_moment()
        os.killpg(standby, signal.SIGSTOP)
        try:
            for _ in range(2):
                self.wait_published()
            kill(leader)
            self.wait(lambda: f"version 1 is taken over by its standby in driver {standby}" in self.log())
        finally:
            os.killpg(standby, signal.SIGCONT)
        self._check_taken_by(standby)

    def _check_taken_by(self, standby: int) -> None:
        self.wait(lambda: self.leader == standby)
        assert self.took_over, self._report()
        self.wait_published()
        self.check_so_far()

    def go_on(self, kill: Callable[[int], None]) -> bool:
        """`kill` something of the leader at a random moment, without which it may be able to go on. Returns whether the
        standby had to take over."""
        leader, standby = self.wait_moment()
        kill(leader)
        for _ in range(5):
            self.wait_published()
        self.check_so_far()
        assert self.leader in (leader, standby), self._report()
        assert self.leader == leader or self.took_over, self._report()
        return self.leader != leader

    def add_host(self, name: str) -> None:
        """Start another host."""
        self._hosts.append(self._new_host(name))

    def kill_host(self, host: HostProcess, *, with_drivers: bool = False) -> None:
        """kill -9, of a host alone, or at once with its drivers and all of their processes, as where a machine is lost."""
        drivers = drivers_of(host) if with_drivers else []
        self._hosts.remove(host)
        host.kill()
        for each in drivers:
            with suppress(ProcessLookupError):  # it has ended with its host
                os.killpg(each, signal.SIGKILL)

    def check_so_far(self) -> None:
        """What is published, while the load goes on, is what an undisturbed run has published at some time."""
        found = counted(self.store)
        last = max((opened for opened, *_ in found), default=-10)
        assert found == by_duckdb(self.store, until_s=last + 10), self._report()
        with self.store.reader("out/copy") as reader:
            at = pa.Table.from_batches(reader.batches(), reader.schema)["at"].cast(pa.int64()).to_numpy()
        assert np.array_equal(np.sort(at), BASE + SECOND * np.arange(len(at))), self._report()

    def check_all(self) -> None:
        """Let it read all there is: what is published is exactly what an undisturbed run has published by then."""
        with self.load.paused() as written:
            expected = by_duckdb(self.store, until_s=written - 1 - _LATE_S)
            self.wait(lambda: self.published >= written and self._closed >= len(expected))
            self.check_so_far()
            assert (self.published, self._closed) == (written, len(expected)), self._report()


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)


def kill_all(pids: Sequence[int]) -> None:
    """kill -9, of processes of which some may end with others. There has to be one."""
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            kill(pid)


def java_of(driver: int) -> int:
    """Spark's Java process of a driver."""
    (found,) = [each for each in psutil.Process(driver).children() if Path(each.name()).name == "java"]
    return int(found.pid)


def workers_of(driver: int) -> list[int]:
    """The Python processes of a driver's Spark, without those of sources and the server that all are forked from."""
    return [pid for pid, name in _python_of(driver) if name != _SOURCE]


def sources_of(driver: int) -> list[int]:
    """The Python processes in which the sources of a driver's queries live."""
    return [pid for pid, name in _python_of(driver) if name == _SOURCE]


def drivers_of(host: HostProcess) -> list[int]:
    """The drivers of a host."""
    return [pid for pid, words in _command_lines(psutil.Process(host.pid).children()) if "queries.driver" in words]


def executors_of(driver: int) -> list[int]:
    """The executors of a cluster that work for a driver."""
    ports = {
        each.laddr.port for each in psutil.Process(java_of(driver)).net_connections("tcp") if each.status == "LISTEN"
    }
    found = []
    for pid, words in _command_lines(list(psutil.process_iter())):
        scheduler = re.search(r"--driver-url spark://CoarseGrainedScheduler@\S+:(\d+)", words)
        if EXECUTOR in words and scheduler is not None and int(scheduler[1]) in ports:
            found.append(pid)
    return found


def _python_of(driver: int) -> list[tuple[int, str]]:
    """What was forked from the server of a driver, with the names."""
    (server,) = [pid for pid, words in _command_lines(psutil.Process(driver).children()) if _SERVER in words]
    found = []
    for each in psutil.Process(server).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            found.append((int(each.pid), each.name()))
    return found


def _command_lines(processes: Sequence[psutil.Process]) -> list[tuple[int, str]]:
    found = []
    for each in processes:
        try:
            found.append((int(each.pid), " ".join(each.cmdline())))
        except psutil.Error:  # it has just ended
            continue
    return found
