"""The ports `Tasks`, `Clock` and `Ids` of one simulated process, on a `Scheduler`."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType

from anabranch.model.ids import Micros
from tests.simulation.scheduler import EPOCH_US, Group, Scheduler, SimTask

__all__ = ["SimClock", "SimCondition", "SimIds", "SimLock", "SimTasks"]


class SimClock:
    """The virtual clock; see `runtime.clock.Clock`."""

    def __init__(self, scheduler: Scheduler, skew_us: int = 0) -> None:
        self._scheduler = scheduler
        self.skew_us = skew_us  # how far it is ahead of the world's; it may jump

    def now(self) -> Micros:
        """Virtual µs, counted from the first of January 2026."""
        return Micros(EPOCH_US + self._scheduler.now_us + self.skew_us)

    def monotonic(self) -> float:
        """Virtual seconds since the world began."""
        return self._scheduler.now_us / 1e6


class SimIds:
    """Seeded randomness; see `runtime.ids.Ids`."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)

    def bits(self, count: int) -> int:
        """Returns a number below `2**count` that the seed determines."""
        return self._rng.getrandbits(count)


class SimLock:
    """A lock that waits in the scheduler; see `runtime.tasks.Lock`. Without a group it belongs to the whole world."""

    def __init__(self, scheduler: Scheduler, group: Group | None, name: str = "lock") -> None:
        self._scheduler = scheduler
        self._group = group
        self._name = name
        self._taken = False
        self._waiting: list[tuple[SimTask, int]] = []

    def acquire(self, blocking: bool = True) -> bool:
        """Takes the lock. A switching point, contended or not, so that races between two holds are found as well."""
        if not blocking:
            self._scheduler.enter(self._group)
            if self._taken:
                return False
        else:
            self._scheduler.point(f"acquire {self._name}", self._group)
            while self._taken:
                me = self._scheduler.enter(self._group)
                self._waiting.append((me, me.ticket))
                self._scheduler.park(f"wait {self._name}", group=self._group)
        self._taken = True
        return True

    def locked(self) -> bool:
        """True if the lock is held. No switching point: it is called under the lock that decides."""
        return self._taken

    def release(self) -> None:
        """Releases the lock; waiters race for it. A crashed process may release too: a lock of the world outlives
        it."""
        self._taken = False
        waiting, self._waiting = self._waiting, []
        for task, ticket in waiting:
            self._scheduler.wake(task, ticket)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SimCondition:
    """A condition that waits in the scheduler; see `runtime.tasks.Condition`."""

    def __init__(self, scheduler: Scheduler, group: Group) -> None:
        self._scheduler = scheduler
        self._group = group
        self._lock = SimLock(scheduler, group, "condition")
        self._waiting: list[tuple[SimTask, int]] = []

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Releases the lock, waits, takes it again."""
        me = self._scheduler.enter(self._group)
        self._waiting.append((me, me.ticket))
        self._lock.release()
        woken = self._scheduler.park("wait condition", timeout=timeout, group=self._group)
        self._lock.acquire()
        return woken

    def notify_all(self) -> None:
        """Wakes all waiters; the scheduler decides which one continues."""
        waiting, self._waiting = self._waiting, []
        for task, ticket in waiting:
            self._scheduler.wake(task, ticket)
        self._scheduler.point("notify", self._group)


class _Spawned:
    def __init__(self, scheduler: Scheduler, task: SimTask) -> None:
        self._scheduler = scheduler
        self._task = task

    def join(self, timeout: float | None = None) -> bool:
        """See `runtime.tasks.Task.join`."""
        return self._scheduler.join(self._task, timeout, self._task.group)


class SimTasks:
    """The tasks of one simulated process; see `runtime.tasks.Tasks`. Without a group its locks belong to the whole
    world, and it starts no tasks."""

    def __init__(self, scheduler: Scheduler, group: Group | None) -> None:
        self._scheduler = scheduler
        self._group = group

    def spawn(self, name: str, work: Callable[[], None]) -> _Spawned:
        """Starts a task that dies with this process."""
        assert self._group is not None
        self._scheduler.enter(self._group)
        task = self._scheduler.spawn(name, work, self._group)
        self._scheduler.point(f"spawn {task.name}", self._group)
        return _Spawned(self._scheduler, task)

    def lock(self) -> SimLock:
        """Returns a lock of this process."""
        return SimLock(self._scheduler, self._group)

    def condition(self) -> SimCondition:
        """Returns a condition of this process."""
        assert self._group is not None
        return SimCondition(self._scheduler, self._group)

    def sleep(self, seconds: float) -> None:
        """Waits in virtual time."""
        self._scheduler.park("sleep", timeout=seconds, group=self._group)
