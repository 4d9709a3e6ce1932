"""One simulated run of a store: clients in several processes, random crashes and restarts, judgement at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

# Imports everything before any run: defaults of arguments are evaluated once, which must not happen while limits are
# lowered.
import anabranch.store  # noqa: F401
from anabranch import limits
from anabranch.runtime.settings import Settings
from anabranch.testing.faults import Action, Faults, RandomFaults
from tests.simulation import clients
from tests.simulation.bucket import Bucket
from tests.simulation.clients import Arena, ClientMix
from tests.simulation.scheduler import Scheduler, SimTask
from tests.simulation.world import Process, ProcessCrashed, World

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["PLACES", "FaultRates", "Outcome", "Simulation", "tight_limits"]

# Small values, so that a few events suffice for blobs beside inlined commits, two commits in flight, writers that wait
# for room, large events, and collections that find something.
SETTINGS: Final = Settings(
    inline_bytes_max=1_500,
    commit_bytes_max=6_000,
    pending_bytes_max=12_000,
    pipeline_bytes_min=800,
    event_bytes_max=8_000,
    horizon_us=50_000,
    blob_deadline_s=0.2,
)
PLACES: Final = ("folder", "s3", "sealed")  # where the simulated blobs are; sealed: in a folder, encrypted
_LIMITS: Final = {
    "LEASE_US": 150_000,
    "BACKUP_LEASE_US": 300_000,
    "EPHEMERAL_LEASE_US": 100_000,
    "CLOCKS_DIFFER_US": 60_000,  # more than any two clocks here
    "EXTENTS_PER_PLAN_MAX": 8,
    "COLLECT_PAGE_ROWS": 5,
    "WAL_PAGES_CHECKPOINT": 16,
    "SCOPE_PAGE": 2,
    "JOB_HEARTBEAT_TIMEOUT_US": 40_000,
    "BLOB_PAUSE_S_MIN": 0.002,
    "BLOB_PAGE_ROWS": 3,
    "BLOB_PART_BYTES": 700,
    "TIME_IDLE_US": 1_500_000,
    "BYTE_CHUNK_BYTES": 64,
    "BYTE_GATHERED_BYTES": 200,
    "BYTE_BUFFER_BYTES": 100,
}
FaultRates = Mapping[str, Mapping[Action, float]]
_RATES: Final = {
    Action.CRASH_BEFORE: 0.0002,
    Action.CRASH_AFTER: 0.0002,
    Action.DELAY_BEFORE: 0.002,
    Action.DELAY_AFTER: 0.002,
    Action.STALL: 0.0002,
}
_LOST: Final = {Action.UNCERTAIN_LANDED: 0.01, Action.UNCERTAIN_LOST: 0.01}
_RATES_AT: Final[FaultRates] = {
    "catalog.commit": _RATES | _LOST | {Action.UNCERTAIN_LATE: 0.02, Action.DUPLICATE: 0.03, Action.DELAY_BEFORE: 0.03},
    "writing.commit": _RATES | _LOST,
    "blobs.put": _RATES
    | _LOST
    | {Action.UNCERTAIN_LATE: 0.01, Action.DUPLICATE: 0.03, Action.CRASH_MIDWAY: 0.003}
    | {Action.DELAY_BEFORE: 0.05, Action.STALL: 0.06},
    "blobs.get": _RATES | {Action.UNCERTAIN_LOST: 0.003},
    "blobs.list": _RATES | {Action.UNCERTAIN_LOST: 0.01},
    "blobs.delete": _RATES | _LOST | {Action.DUPLICATE: 0.1},
    # The adapter repeats requests without an answer, so an object store may fail far more often.
    "s3.put": _RATES
    | {Action.UNCERTAIN_LANDED: 0.08, Action.UNCERTAIN_LOST: 0.08, Action.UNCERTAIN_LATE: 0.08}
    | {Action.DUPLICATE: 0.03, Action.DELAY_BEFORE: 0.05, Action.STALL: 0.03},
    "s3.get": _RATES | {Action.UNCERTAIN_LOST: 0.05},
    "s3.head": _RATES | {Action.UNCERTAIN_LOST: 0.05},
    "s3.list": _RATES | {Action.UNCERTAIN_LOST: 0.05},
    "s3.delete": _RATES | {Action.UNCERTAIN_LANDED: 0.05, Action.UNCERTAIN_LOST: 0.05},
}
_SKEW_US: Final = 15_000  # between the catalog's clock as a process sees it and the world's; it may jump as far
_END_S: Final = 120.0  # virtual seconds that clients may take to stop


@contextmanager
def tight_limits() -> Iterator[None]:
    """Lowers some limits of the store, so that a short run reaches them."""
    before = {name: getattr(limits, name) for name in _LIMITS}
    for name, value in _LIMITS.items():
        setattr(limits, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(limits, name, value)


@dataclass
class Outcome:
    """The outcome of a run. `error` is what ended it early: a deadlock, or an error that no client expects."""

    seed: int
    steps: int = 0
    virtual_s: float = 0.0
    digest: str = ""
    crashes: int = 0
    power_cuts: int = 0
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    error: BaseException | None = None
    trace: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if there are no violations."""
        return not self.violations and self.error is None


class Simulation:
    """A run from one seed. `fault_rates` has rates of faults by call, in addition to the usual ones; each process runs
    one of the `mixes`; blobs are in one of the `PLACES`. `tell` is called now and then with the steps and
    acknowledged events."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int,
        processes: int = 3,
        place: str = "folder",
        fault_rates: FaultRates | None = None,
        mixes: Sequence[ClientMix] = clients.ALL,
        tell: Callable[[int, int], None] | None = None,
    ) -> None:
        self._seed = seed
        self._steps = steps
        self._count = processes
        self._tell = tell
        self._mixes = mixes
        self._rates_at: FaultRates = {
            **_RATES_AT,
            **{name: {**_RATES_AT.get(name, _RATES), **rates} for name, rates in (fault_rates or {}).items()},
        }
        # The end needs steps too; only a run that spins comes near this.
        self._scheduler = Scheduler(seed, steps_max=20 * steps + 500_000, trace_max=100_000)
        bucket = Bucket() if place == "s3" else None
        self._world = World(
            seed, settings=SETTINGS, scheduler=self._scheduler, bucket=bucket, encrypted=place == "sealed"
        )
        self._arena = Arena(self._world.rng, elsewhere=self._world.elsewhere)
        self._living: list[tuple[Process, list[SimTask]]] = []
        self._outcome = Outcome(seed)

    def run(self) -> Outcome:
        """Runs it. Raises nothing but KeyboardInterrupt: every other error is in the outcome."""
        outcome = self._outcome
        with self._world, tight_limits():
            try:
                self._world.run(self._story)
            except Exception as exc:
                outcome.error = exc
        outcome.steps = self._scheduler.steps
        outcome.virtual_s = self._scheduler.now_us / 1e6
        outcome.digest = self._scheduler.digest
        outcome.done = self._arena.done
        outcome.violations = list(dict.fromkeys(self._arena.violations))
        outcome.trace = self._scheduler.trace()
        return outcome

    def _story(self) -> None:
        first = self._world.process("first")
        first.call(self._prepare)
        first.close()
        while len(self._living) < self._count:
            self._start()
        while self._scheduler.steps < self._steps:
            self._world.sleep(self._world.rng.random() * 0.02)
            self._replace_the_dead()
            self._strike(self._world.rng.random())
            if self._tell:
                self._tell(self._scheduler.steps, self._arena.done["event acknowledged"])
        self._wind_down()
        self._judge()

    def _strike(self, draw: float) -> None:
        """Affects whole processes now and then: a kill, a power cut, a jump of the catalog's clock as it sees it."""
        victim = self._world.rng.choice(self._living)[0]
        if draw < 0.03:
            victim.crash()
        elif draw < 0.045:
            self._world.power_cut()
            self._outcome.power_cuts += 1
        elif draw < 0.065:
            victim.clock.skew_us = self._skew()

    def _skew(self) -> int:
        return self._world.rng.randrange(-_SKEW_US, _SKEW_US)

    def _prepare(self, store: Store) -> None:
        store.scopes.create("sim")
        for _ in range(2):
            self._arena.new_stream(store)

    def _start(self) -> None:
        """Starts a new process with its clients; it may crash while it opens."""
        serial = self._arena.serial()
        faults: Faults = RandomFaults(self._world.rng, _RATES, self._rates_at)
        try:
            process = self._world.process(f"p{serial}", faults=faults, skew_us=self._skew())
        except ProcessCrashed:
            self._outcome.crashes += 1
            return
        tasks = []
        mix = self._world.rng.choice(self._mixes)
        for number, (name, client) in enumerate(mix):
            if self._world.rng.random() < 0.8:
                tasks.append(process.spawn(name, self._client(client, f"p{serial}.{name}{number}")))
        self._living.append((process, tasks))

    def _client(self, client: clients.Client, name: str) -> Callable[[Store], None]:
        return lambda store: client(self._arena, store, name)

    def _replace_the_dead(self) -> None:
        alive = [each for each in self._living if each[0].alive]
        self._outcome.crashes += len(self._living) - len(alive)
        self._living = alive
        while len(self._living) < self._count:
            self._start()

    def _wind_down(self) -> None:
        """Lets every client stop by itself, and closes every store in good order."""
        self._arena.stopping = True
        for process, tasks in self._living:
            for task in tasks:
                if not self._world.join(task, _END_S):
                    self._arena.violations.append(f"{task.name} does not end:\n{self._scheduler.report()}")
                    return
            try:
                process.close()
            except ProcessCrashed:
                self._outcome.crashes += 1

    def _judge(self) -> None:
        """In a fresh process, compares every ledger with what is stored, before and after everything is compacted
        and collected, and checks the store."""
        if self._arena.violations:
            return
        last = self._world.process("last")
        last.call(self._arena.settle)
        last.call(self._judge_streams)
        last.call(lambda store: store.compact(force=True))
        for _ in range(3):
            last.call(lambda store: store.collect())
            self._world.sleep(1)
        last.call(self._judge_streams)
        last.close()

    def _judge_streams(self, store: Store) -> None:
        self._arena.violations += clients.judge(self._arena, store)
