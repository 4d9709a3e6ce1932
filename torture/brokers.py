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
_GOES_ON_S: Final = 15.0  # by then every writer has an answer again, after one of two brokers was killed
_LOOK_S: Final = 0.05


class BrokerRun:
    """Torture of two brokers for some seconds."""

    def __init__(self, name: str, place: StoreLocation, folder: Path, seed: int, rate: float = _RATE) -> None:
        self._place, self._folder, self._rng, self._rate = place, folder, random.Random(seed), rate
        self._stop = folder / "stop"
        self._logs = StreamLogs(STREAM)
        self._others: list[Child] = []
        self._brokers: list[BrokerProcess] = []
        self._sharing: Callable[[str], Child]
        self.report = Report(name, seed)

    def run(self, seconds: float, log: Callable[[Report], None], *, failovers: int = 1) -> Report:
        """Tortures for `seconds` from when the clients were started; then kills one of the two brokers `failovers` times
        on a good network, and measures when the writers go on; lets them end in peace, and judges."""
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
                self._tell("failover", log)
                for left in reversed(range(failovers)):
                    self._fail_over(left % 2)
                    if left:
                        self._start_again(left % 2, (flight, http))
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
        self._others.append(Child(self._folder, "transact", transact.transact, there, stop, "transact", next(seeds)))
        self._sharing = lambda name: Child(self._folder, name, share.share, there, stop, name, next(seeds))
        self._others.append(self._sharing("share.0"))

    def _replace_readers(self) -> None:
        """A reader of the group kills itself behind some of its units: another one takes its place."""
        if not self._others[-1].alive:
            self._others.append(self._sharing(f"share.{len(self._others)}"))

    # faults

    def _torture(self, seconds: float, proxies: tuple[Proxy, Proxy], log: Callable[[Report], None]) -> None:
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds or not self._acked():
            self.report.seconds = now
            self._strike(self._rng.randrange(2), proxies)
            self._replace_readers()
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
        self._start_again(place, proxies)

    def _start_again(self, place: int, proxies: tuple[Proxy, Proxy]) -> None:
        self._brokers[place] = started = self._broker(place)
        for proxy, kind in zip(proxies, ("flight", "http"), strict=True):
            proxy.targets[place] = _port(started, kind)

    def _fail_over(self, place: int) -> None:
        """Kill one broker, and measure until every writer has an answer again. All have one before it."""
        self._await_answers(time.monotonic_ns())
        killed_at = time.monotonic_ns()
        self._brokers[place].kill()
        for name, gap in self._await_answers(killed_at).items():
            what = f"longest time from kill -9 of a broker to an answer for {name}, ms"
            self.report.counts[what] = max(self.report.counts[what], gap // 1_000_000)
        self.report.faults["broker: kill -9, on a good network"] += 1

    def _await_answers(self, since: int) -> dict[str, int]:
        """How long after `since` each writer had its next answer, in ns."""
        deadline = time.monotonic() + _GOES_ON_S
        while True:
            answered = {each.name: _first_answer(each, since) for each in self._logs.writers}
            found = {name: stamp - since for name, stamp in answered.items() if stamp is not None}
            if len(found) == len(answered) or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        self.report.violations += [
            f"{name} had no answer within {_GOES_ON_S:g} s with a broker left" for name in answered if name not in found
        ]
        return found

    # the end

    def _end(self) -> None:
        self._stop.touch()
        deadline = time.monotonic() + _ENDING_S
        for child in self._children:
            if not child.join(max(0.0, deadline - time.monotonic())) and not child.name.startswith("share"):
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


def _first_answer(child: Child, since: int) -> int | None:
    return next((stamp for stamp, words in child.stamped() if words[0] == "acked" and stamp > since), None)


def _port(broker: BrokerProcess, kind: str) -> int:
    return int(str(broker.addresses[kind]).rstrip("/").rpartition(":")[2])
