"""One run: processes around a store, frequent faults, a quiet end, and the judgement."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from torture import share, transact, trim, workers
from torture.child import Child
from torture.judge import process_errors, violations
from torture.location import LEASE_S, STREAMS, StoreLocation
from torture.power import Power
from torture.shuffle import shuffle, undo_renames
from torture.stream_logs import StreamLogs

_WRITERS: Final = 2  # per stream
_ALONE: Final = ("change", "tidy", "shuffle", "transact", "share", "share", "trim")  # the other processes
# The longest exceeds the horizon of `workers.run_upkeep`, and `place.LEASE_S`.
_STALLS: Final = (("stopped (SIGSTOP) for a moment", 0.1), ("stopped (SIGSTOP) beyond its leases", 4.0))
_ENDING_S: Final = 90.0  # for all processes together to end in order
_UNDER_WAY_S: Final = 120.0  # beyond its time, for a run in which nothing has happened yet
_BETWEEN_CUTS_S: Final = 8.0  # minimum, so that all processes are working again


class Server(Protocol):
    """A server that the store needs, and that can be tortured too. `left_out`: faults that are impossible on this
    machine, and why."""

    left_out: list[str]

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """Returns the faults that can be applied to it, by name."""
        ...

    def recover(self) -> None:
        """Makes it answer again."""
        ...

    def lose_power(self) -> None:
        """Loses power with the machine that it was on, and starts again."""
        ...


@dataclass
class Report:
    """The result of a run, and the phase that it is in. `counts` holds answers and operations, `faults` the faults that were applied."""

    place: str
    seed: int
    phase: str = ""
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Run:
    """Torture of one place for some seconds."""

    def __init__(self, name: str, place: StoreLocation, folder: Path, seed: int, server: Server) -> None:
        self._place = place
        self._folder = folder
        self._rng = random.Random(seed)
        self._server = server
        self._stop = folder / "stop"
        self._numbers = count()
        self._logs = {stream: StreamLogs(stream) for stream in STREAMS}
        self._all: list[Child] = []
        self._stalled: list[tuple[float, Child]] = []
        # Only the syncs of SQLite and of a folder can be observed; a server syncs on its own.
        self._power = None if place.on_disk is None else Power(place.on_disk, folder / "journals")
        self._cut_after = time.monotonic() + _BETWEEN_CUTS_S
        self.report = Report(name, seed, left_out=list(server.left_out))

    def run(self, seconds: float, log: Callable[[Report], None]) -> Report:
        """Tortures for at least `seconds` from when its processes were started, until a fault has struck and an event
        was acknowledged; then judges. If that takes more than `_UNDER_WAY_S` longer, it is a violation, and the run ends.
        `log` is called now and then with the report so far."""
        log(self._at("starting"))
        with self._place.open(0) as store:
            store.scopes.create("t")
            for stream in (*STREAMS, *transact.STREAMS, share.MADE, trim.STREAM):
                store.streams.create(stream, scaling=2)
            store.groups.open(share.GROUP, streams=[share.SOURCE], lease_s=LEASE_S)
        if self._power is not None:
            self._power.restart()
        try:
            alive = self._start_all()
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds or not self._under_way():
                self.report.seconds = now
                self._wake_due()
                self._inject_fault(alive)
                alive = [child if child.alive else self._replaced(child) for child in alive]
                log(self._at("torture"))
                if now > seconds + _UNDER_WAY_S:
                    self.report.violations.append(f"nothing was acknowledged, or no fault struck, in {now:.0f} s")
                    break
                time.sleep(self._rng.random() * 0.6)
            log(self._at("ending"))
            self._end(alive)
        except BaseException:
            for child in self._all:
                child.kill()
            raise
        self.report.seconds = time.monotonic() - began
        log(self._at("judging"))
        self._judge()
        return self._at("done")

    def _at(self, phase: str) -> Report:
        self.report.phase = phase
        return self.report

    def _under_way(self) -> bool:
        """True once a fault has struck and a writer had an event acknowledged: a loaded machine takes its time."""
        if not sum(self.report.faults.values()):
            return False
        return any(
            line[:1] == ["acked"] for told in self._logs.values() for child in told.writers for line in child.lines()
        )

    # processes

    def _start_all(self) -> list[Child]:
        kinds = [("writer", stream) for stream in STREAMS for _ in range(_WRITERS)]
        kinds += [("follower", stream) for stream in STREAMS]
        return [self._start(*kind) for kind in [*kinds, *((kind, "") for kind in _ALONE)]]

    def _start(self, kind: str, stream: str) -> Child:
        name, seed = f"{kind}.{next(self._numbers)}.{stream.replace('/', '-')}", self._rng.randrange(1 << 32)
        place, stop = self._place, self._stop
        start = partial(Child, self._folder, name, journal=None if self._power is None else self._power.journal(name))
        match kind:
            case "writer":
                child = start(workers.write, place, stop, stream, name, seed)
                self._logs[stream].writers.append(child)
            case "follower":
                child = start(workers.follow, place, stop, stream, self._position(stream), name, seed)
                self._logs[stream].followers.append(child)
            case "shuffle":
                child = start(shuffle, place, stop, name, seed)
            case "change":
                child = start(workers.change, place, stop, name, seed)
            case "transact":
                child = start(transact.transact, place, stop, name, seed)
            case "share":
                child = start(share.share, place, stop, name, seed)
            case "trim":
                child = start(trim.trim, place, stop, name, seed)
            case _:
                child = start(workers.run_upkeep, place, stop, seed)
        self._all.append(child)
        return child

    def _replaced(self, child: Child) -> Child:
        kind, _, stream = child.name.split(".")
        return self._start(kind, stream.replace("-", "/", 1))

    def _position(self, stream: str) -> str | None:
        """Returns the position that the followers have reached."""
        for child in reversed(self._logs[stream].followers):
            if told := [rest[0] for word, *rest in child.lines() if word == "at"]:
                return told[-1]
        return None

    # faults

    def _inject_fault(self, alive: list[Child]) -> None:
        faults: list[tuple[str, Callable[[], None]]] = [
            ("kill -9", lambda: self._rng.choice(alive).kill()),
            ("kill -9", lambda: self._rng.choice(alive).kill()),
            *((name, partial(self._stall, alive, seconds)) for name, seconds in _STALLS),
            ("clock set to another time", lambda: self._rng.choice(alive).send(signal.SIGUSR1)),
        ]
        faults += [(name, partial(act, self._rng)) for name, act in self._server.faults().items()]
        if time.monotonic() > self._cut_after:
            faults.append(("power cut", partial(self._cut, alive)))
        name, act = self._rng.choice(faults)
        act()
        self.report.faults[name] += 1

    def _cut(self, alive: list[Child]) -> None:
        for child in alive:
            child.kill()
        self._stalled.clear()
        if self._power is not None:
            self._power.cut(self._rng)
        self._server.lose_power()
        self._cut_after = time.monotonic() + _BETWEEN_CUTS_S

    def _stall(self, alive: list[Child], seconds: float) -> None:
        child = self._rng.choice(alive)
        child.send(signal.SIGSTOP)
        self._stalled.append((time.monotonic() + seconds, child))

    def _wake_due(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        for due, child in list(self._stalled):
            if all_of_them or due <= now:
                child.send(signal.SIGCONT)
                self._stalled.remove((due, child))

    # the end

    def _end(self, alive: list[Child]) -> None:
        """Ends the run quietly: no more faults, and all processes end in order."""
        self._wake_due(all_of_them=True)
        self._server.recover()
        self._stop.touch()
        deadline = time.monotonic() + _ENDING_S
        for child in alive:
            if not child.join(max(0.0, deadline - time.monotonic())):
                self.report.violations.append(f"{child.name} does not end")
                child.kill()

    def _judge(self) -> None:
        raised, self.report.met = process_errors(self._all)
        self.report.violations += [f"a process ended by an error: {text}" for text in raised]
        with self._place.open(0) as store:
            undo_renames(store)
            for stream in STREAMS:  # events that no follower has read yet, because they were stopped
                self._follow_to_the_end(stream)
            told = list(self._logs.values())
            self.report.violations += violations(store, told, self._all, self.report.counts)

    def _follow_to_the_end(self, stream: str) -> None:
        name = f"follower.{next(self._numbers)}.end"
        child = Child(self._folder, name, workers.read_rest, self._place, stream, self._position(stream))
        self._logs[stream].followers.append(child)
        if not child.join(_ENDING_S):
            self.report.violations.append(f"{name} does not end")
            child.kill()
