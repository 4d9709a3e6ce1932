"""The ports `Tasks`, `Clock` and `Ids` of one simulated process, on a `Scheduler`."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType

from anabranch.model.ids import Micros
from anabranch.testing.scheduler import EPOCH_US, Group, Scheduler, SimTask

__all__ = ["SimClock", "SimCondition", "SimIds", "SimLock", "SimTasks"]


class SimClock:
    """The virtual clock; see `runtime.clock.Clock`."""

    def __init__(self, scheduler: Scheduler, skew_us: int = 0) -> None:
        self._scheduler = scheduler
        self.skew_us = skew_us  # how far this process's calendar is ahead of the world's; it may jump

    def now(self) -> Micros:
        """Virtual µs, counted from the first of January 2026."""
        return Micros(EPOCH_US + self._scheduler.now_us + self.skew_us)

    def monotonic(self) -> float:
        """Virtual seconds since the world began."""
        return self._scheduler.now_us / 1e6


class SimIds:
    """Seeded chance; see `runtime.ids.Ids`."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)

    def bits(self, count: int) -> int:
        """A number below `2**count` that the seed determines."""
        return self._rng.getrandbits(count)


class SimLock:
    """A lock that waits in the scheduler; see `runtime.tasks.Lock`. Without a group it is the whole world's."""

    def __init__(self, scheduler: Scheduler, group: Group | None, name: str = "lock") -> None:
        self._scheduler = scheduler
        self._group = group
        self._name = name
        self._taken = False
        self._waiting: list[tuple[SimTask, int]] = []

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock. A switching point, contended or not, so that races between two holds are found as well."""
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

    def release(self) -> None:
        """Give it back; waiters race for it. The dead may release too: a lock of the world outlives a process."""
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
        """Release, wait, take again."""
        me = self._scheduler.enter(self._group)
        self._waiting.append((me, me.ticket))
        self._lock.release()
        woken = self._scheduler.park("wait condition", timeout=timeout, group=self._group)
        self._lock.acquire()
        return woken

    def notify_all(self) -> None:
        """Wake all waiters, and let the scheduler decide who goes on."""
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
    """The tasks of one simulated process; see `runtime.tasks.Tasks`. Without a group its locks are the whole world's,
    and it starts nothing."""

    def __init__(self, scheduler: Scheduler, group: Group | None) -> None:
        self._scheduler = scheduler
        self._group = group

    def spawn(self, name: str, work: Callable[[], None]) -> _Spawned:
        """A task that dies with this process."""
        assert self._group is not None
        self._scheduler.enter(self._group)
        task = self._scheduler.spawn(name, work, self._group)
        self._scheduler.point(f"spawn {task.name}", self._group)
        return _Spawned(self._scheduler, task)

    def lock(self) -> SimLock:
        """A lock of this process."""
        return SimLock(self._scheduler, self._group)

    def condition(self) -> SimCondition:
        """A condition of this process."""
        assert self._group is not None
        return SimCondition(self._scheduler, self._group)

    def sleep(self, seconds: float) -> None:
        """Pass virtual time."""
        self._scheduler.park("sleep", timeout=seconds, group=self._group)
