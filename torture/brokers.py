"""One run against two broker processes over one store: they are killed and stopped, and what is between them and their
clients is a bad network."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.server.kit import BrokerProcess
from torture import share, transact, workers
from torture.broker_clients import BrokerLocation, post, write
from torture.child import Child
from torture.conductor import Report
from torture.judge import content_of, ledger_of, process_errors
from torture.location import LEASE_S, STREAMS, StoreLocation
from torture.proxy import Proxy
from torture.stream_logs import StreamLogs

STREAM: Final = STREAMS[0]
_RATE: Final = 0.02  # of chunks of bytes
_ENDING_S: Final = 60.0
_UNDER_WAY_S: Final = 40.0  # beyond its time, for a run in which not every writer was answered yet
_STOPPED_S: Final = (0.1, 1.5)


class BrokerRun:
    """Torture of two brokers for some seconds."""

    def __init__(self, name: str, place: StoreLocation, folder: Path, seed: int, rate: float = _RATE) -> None:
        self._place, self._folder, self._rng, self._rate = place, folder, random.Random(seed), rate
        self._stop = folder / "stop"
        self._logs = StreamLogs(STREAM)
        self._others: list[Child] = []
        self._brokers: list[BrokerProcess] = []
        self.report = Report(name, seed)

    def run(self, seconds: float, log: Callable[[Report], None]) -> Report:
        """Tortures for `seconds` from when the clients were started, lets them end in peace, and judges."""
        self._tell("starting", log)
        with self._place.open(0) as store:
            store.scopes.create("t")
            for stream in (STREAM, *transact.STREAMS, share.MADE):
                store.streams.create(stream, scaling=2)
            store.groups.open(share.GROUP, streams=[share.SOURCE], lease_s=LEASE_S)
            ident = store.streams.get(STREAM).id
        with self._serving() as (flight, http):
            try:
                self._start(flight, http, ident)
                self._torture(seconds, (flight, http), log)
                self._tell("ending", log)
                self._end()
            except BaseException:
                for child in self._children:
                    child.kill()
                raise
            self.report.faults.update(flight.faults + http.faults)
        self._tell("judging", log)
        self._judge()
        self._tell("done", log)
        return self.report

    def _tell(self, phase: str, log: Callable[[Report], None]) -> None:
        self.report.phase = phase
        log(self.report)

    @property
    def _children(self) -> list[Child]:
        return [*self._logs.writers, *self._logs.followers, *self._others]

    # processes

    @contextmanager
    def _serving(self) -> Iterator[tuple[Proxy, Proxy]]:
        try:
            self._brokers = [self._broker(place) for place in range(2)]
            with ExitStack() as proxies:
                flight, http = (
                    Proxy([_port(each, kind) for each in self._brokers], self._rng.randrange(1 << 32), self._rate)
                    for kind in ("flight", "http")
                )
                proxies.callback(flight.close)
                proxies.callback(http.close)
                yield flight, http
        finally:
            for each in self._brokers:
                each.kill()

    def _broker(self, place: int) -> BrokerProcess:
        folder = self._folder / f"broker-{place}"
        folder.mkdir(exist_ok=True)
        options = () if self._place.blobs is None else ("--blobs", self._place.blobs)
        return BrokerProcess(self._place.url, *options, folder=folder)

    def _start(self, flight: Proxy, http: Proxy, ident: int) -> None:
        there = BrokerLocation("anabranch://" + ",".join(f"127.0.0.1:{port}" for port in flight.ports))
        urls = [f"http://127.0.0.1:{port}" for port in http.ports]
        stop, seeds = self._stop, iter(lambda: self._rng.randrange(1 << 32), None)
        for name in ("remote.0", "remote.1"):
            self._logs.writers.append(Child(self._folder, name, write, there, stop, STREAM, name, next(seeds)))
        for name in ("http.0", "http.1"):
            self._logs.writers.append(Child(self._folder, name, post, urls, stop, STREAM, ident, name, next(seeds)))
        follow = Child(self._folder, "follower", workers.follow, there, stop, STREAM, None, "follower", next(seeds))
        self._logs.followers.append(follow)
        for kind, work in (("transact", transact.transact), ("share", share.share)):
            self._others.append(Child(self._folder, kind, work, there, stop, kind, next(seeds)))

    # faults

    def _torture(self, seconds: float, proxies: tuple[Proxy, Proxy], log: Callable[[Report], None]) -> None:
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds or not self._acked():
            self.report.seconds = now
            self._strike(self._rng.randrange(2), proxies)
            log(self.report)
            if now > seconds + _UNDER_WAY_S:
                self.report.violations.append(f"some writer had nothing acknowledged in {now:.0f} s")
                break
            time.sleep(self._rng.random() * 2)
        for proxy in proxies:
            proxy.rate = 0.0

    def _acked(self) -> bool:
        return all(any(words[0] == "acked" for words in child.lines()) for child in self._logs.writers)

    def _strike(self, place: int, proxies: tuple[Proxy, Proxy]) -> None:
        broker = self._brokers[place]
        fault = self._rng.choice(("kill -9", "SIGTERM", "stopped (SIGSTOP)"))
        self.report.faults[f"broker: {fault}"] += 1
        if fault == "stopped (SIGSTOP)":
            broker.signal(signal.SIGSTOP)
            time.sleep(self._rng.uniform(*_STOPPED_S))
            broker.signal(signal.SIGCONT)
            return
        if fault == "SIGTERM":
            broker.end()
        broker.kill()
        self._brokers[place] = started = self._broker(place)
        for proxy, kind in zip(proxies, ("flight", "http"), strict=True):
            proxy.targets[place] = _port(started, kind)

    # the end

    def _end(self) -> None:
        self._stop.touch()
        deadline = time.monotonic() + _ENDING_S
        for child in self._children:
            if not child.join(max(0.0, deadline - time.monotonic())) and child.name != "share":
                self.report.violations.append(f"{child.name} does not end")
            child.kill()

    def _judge(self) -> None:
        raised, self.report.met = process_errors(self._children)
        found = [f"a process ended by an error: {text}" for text in raised]
        followers = self._logs.followers
        at = [rest[0] for child in followers for word, *rest in child.lines() if word == "at"]
        last = Child(self._folder, "follower.end", workers.read_rest, self._place, STREAM, at[-1] if at else None)
        followers.append(last)
        if not last.join(_ENDING_S):
            found.append("the last follower does not end")
            last.kill()
        with self._place.open(0) as store:
            ledger = ledger_of(self._logs, store.streams.get(STREAM).id, self.report.counts)
            ledger.readings[0].owed, ledger.readings[0].finished = frozenset(ledger.pointers), True
            found += ledger.judge(content_of(store, STREAM).stored)
            found += transact.wrong(store, self._others, self.report.counts)
            found += share.wrong(store, self.report.counts)
            found += [f"check: {each}" for each in store.check() if each.severity.name == "ERROR"]
        self.report.violations += found
        for child in self._logs.writers:
            stamps = [stamp for stamp, words in child.stamped() if words[0] == "acked"]
            pause = max((after - before for before, after in pairwise(stamps)), default=0)
            self.report.counts[f"longest pause of {child.name} between acknowledgements, ms"] = pause // 1_000_000


def _port(broker: BrokerProcess, kind: str) -> int:
    return int(str(broker.addresses[kind]).rstrip("/").rpartition(":")[2])
