"""A seeded, single-stepped scheduler: real threads of which exactly one runs at any time, and a virtual clock.

A task runs until it comes to a switching point (`point`, a wait, a contended lock, a sleep, a join, its end). There it
draws the next task to run from `random.Random(seed)` and hands over to it. So one seed gives one order of everything,
as long as no task depends on real time, real randomness or the order of a set. No real time passes: when every task
waits, the clock jumps to the earliest time-out.

`tests.simulation.ports` wraps this as the ports `Tasks`, `Clock` and `Ids`. Nothing here depends on a store.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import xxhash

from anabranch.testing.faults import SimulatedCrash
from tests.simulation.stacks import stacks

__all__ = ["Deadlock", "Group", "Scheduler", "SimTask", "StepsExceeded", "TaskFailed"]

EPOCH_US: Final = 1_767_225_600_000_000  # the virtual clock starts on 2026-01-01
_REFUSALS_MAX: Final = 10_000  # calls a dead task may make before it is given up


class Deadlock(Exception):
    """Every task waits for ever. The text lists the stack of each."""


class StepsExceeded(Exception):
    """The run took more steps than it was allowed: most likely a task spins. The text lists the stack of each."""


class TaskFailed(Exception):
    """A task ended with an unhandled error, which is the cause."""


class Group:
    """Tasks that die together, as those of one process. The functions in `on_dead` are called once, when the last
    task has ended after a crash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.tasks: list[SimTask] = []
        self.on_dead: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Group {self.name}{' (dead)' if self.dead else ''}, {len(self.tasks)} tasks>"


class SimTask:
    """A task of the simulation. `ticket` counts its waits, so that a wake-up meant for an earlier one is ignored."""

    def __init__(self, name: str, group: Group) -> None:
        self.name = name
        self.group = group
        self.done = False
        self.thread: threading.Thread | None = None
        self.ident = 0
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ticket = 0
        self.parked = False
        self.timed_out = False
        self.heir: SimTask | None = None  # the task that runs next once this one is unwound
        self.refusals = 0
        self.doing = "start"
        self.joiners: list[tuple[SimTask, int]] = []

    def __repr__(self) -> str:
        return f"<SimTask {self.name}>"


class Scheduler:
    """The time, order and randomness of one simulated world.

    `steps_max` ends a run that spins. Every step costs `step_us` of virtual time. One step in `stall_one_in` (0: none)
    advances the clock to the next time-out, at most by `stall_us_max`, though tasks are ready: a slow thread. The last
    `trace_max` steps are kept; `digest` covers all of them.
    """

    def __init__(
        self,
        seed: int,
        *,
        steps_max: int = 2_000_000,
        step_us: int = 10,
        stall_one_in: int = 50,
        stall_us_max: int = 50_000,
        trace_max: int = 200_000,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.steps = 0
        self.now_us = 0
        self._steps_max = steps_max
        self._step_us = step_us
        self._stall_one_in = stall_one_in
        self._stall_us_max = stall_us_max
        self._steps: deque[tuple[int, str, str]] = deque(maxlen=trace_max)
        self._hash = xxhash.xxh3_64()
        self._ready: list[SimTask] = []
        self._timers: list[tuple[int, int, SimTask, int]] = []
        self._timer_count = 0
        self._names: Counter[str] = Counter()
        self._groups: list[Group] = []
        self._driver = SimTask("driver", Group("driver"))
        self._running = self._driver
        self._main: SimTask | None = None
        self._failure: BaseException | None = None

    # ------------------------------------------------------------------ running

    def run(self, work: Callable[[], None]) -> None:
        """Runs `work` as the first task until it ends, then ends all other tasks as a crash would.

        Raises what `work` raised, TaskFailed for an error in another task, Deadlock or StepsExceeded. A scheduler runs
        once.
        """
        assert self._main is None, "a scheduler runs once"
        self._driver.ident = threading.get_ident()
        self._main = self.spawn("main", work, self.group("world"))
        self._give(self._choose())
        self._driver.baton.acquire()
        self._running = self._driver
        for group in self._groups:
            self.crash(group)
        if self._failure is not None:
            self._failure.add_note(f"seed {self.seed}, step {self.steps}, virtual time {self.now_us / 1e6:.6f} s")
            raise self._failure

    def group(self, name: str) -> Group:
        """Returns a new group of tasks."""
        group = Group(name)
        self._groups.append(group)
        return group

    def spawn(self, name: str, work: Callable[[], None], group: Group) -> SimTask:
        """Creates a task; it runs when it is drawn."""
        full = f"{group.name}.{name}"
        self._names[full] += 1
        if (count := self._names[full]) > 1:
            full = f"{full}#{count}"
        task = SimTask(full, group)
        task.thread = threading.Thread(target=self._body, args=(task, work), name=f"sim-{full}", daemon=True)
        group.tasks.append(task)
        task.thread.start()
        self._ready.append(task)
        return task

    def _body(self, task: SimTask, work: Callable[[], None]) -> None:
        task.ident = threading.get_ident()
        task.baton.acquire()
        try:
            if not task.group.dead:
                work()
        except BaseException as exc:  # whatever ends a task is the run's result
            # Errors of a dead task are consequences of its crash.
            if not task.group.dead:
                self._fail(task, exc)
        self._end(task)

    def _fail(self, task: SimTask, error: BaseException) -> None:
        if task is self._main:
            self._failure = error
            return
        self._failure = TaskFailed(f"task {task.name}: {type(error).__name__}: {error}")
        self._failure.__cause__ = error

    def _end(self, task: SimTask) -> None:
        self.record(task, "end")
        task.done = True
        for joiner, ticket in task.joiners:
            self.wake(joiner, ticket)
        task.group.tasks.remove(task)
        self._bury(task.group)
        if task.heir is not None:
            self._give(task.heir)
        else:
            self._give(self._driver if task is self._main else self._choose())

    def _bury(self, group: Group) -> None:
        if not group.dead or group.tasks:
            return
        last_rites, group.on_dead = group.on_dead, []
        try:
            for rite in last_rites:
                rite()
        except Exception as exc:  # the thread must still hand over to the next task
            self._failure = self._failure or exc

    def _give(self, task: SimTask) -> None:
        self._running = task
        task.baton.release()

    # ------------------------------------------------------------------ switching

    def enter(self, group: Group | None = None) -> SimTask:
        """The running task is about to use something of `group`. Raises SimulatedCrash if either is dead."""
        task = self._running
        if threading.get_ident() != task.ident:
            raise RuntimeError("a thread that the scheduler did not start uses the simulation")
        if task.group.dead or (group is not None and group.dead):
            self._refuse(task)
        if group is not None and group is not task.group:
            raise RuntimeError(f"task {task.name} uses something of {group.name}: spawn a task there instead")
        return task

    def _refuse(self, task: SimTask) -> None:
        task.refusals += 1
        if task.refusals > _REFUSALS_MAX:
            # It swallows its own crash. Its thread can't be ended from outside, so it is left asleep.
            self._failure = TaskFailed(f"task {task.name} goes on after its process crashed:\n{stacks([task])}")
            self._end(task)
            task.baton.acquire()
        raise SimulatedCrash(task.group.name)

    def point(self, label: str, group: Group | None = None) -> None:
        """A switching point: others may run before this returns. Raises SimulatedCrash."""
        task = self.enter(group)
        self.record(task, label)
        self._ready.append(task)
        self._switch(task)

    def park(self, label: str, *, timeout: float | None = None, group: Group | None = None) -> bool:
        """Waits until `wake` is called with this wait's ticket; False if `timeout` seconds passed first."""
        task = self.enter(group)
        self.record(task, label)
        task.parked = True
        task.timed_out = False
        if timeout is not None:
            deadline = self.now_us + max(0, round(timeout * 1e6))
            self._timer_count += 1
            heapq.heappush(self._timers, (deadline, self._timer_count, task, task.ticket))
        self._switch(task)
        return not task.timed_out

    def wake(self, task: SimTask, ticket: int) -> None:
        """Ends the wait that has this ticket; does nothing if it is over."""
        if task.parked and task.ticket == ticket:
            task.parked = False
            task.ticket += 1
            self._ready.append(task)

    def join(self, task: SimTask, timeout: float | None, group: Group) -> bool:
        """Waits for a task's end; False after `timeout` seconds, and at once in the task itself."""
        me = self.enter(group)
        if not task.done and task is not me:
            task.joiners.append((me, me.ticket))
            self.park(f"join {task.name}", timeout=timeout, group=group)
        return task.done

    def _switch(self, task: SimTask) -> None:
        chosen = self._choose()
        if chosen is not task:
            self._give(chosen)
            task.baton.acquire()
        if task.group.dead:
            self._refuse(task)

    def _choose(self) -> SimTask:
        """Returns the next task to run; the driver if the run is over."""
        self.steps += 1
        self.now_us += self._step_us
        if self._failure is None and self.steps > self._steps_max:
            self._failure = StepsExceeded(f"more than {self._steps_max:,} steps:\n{self.report()}")
        if self._failure is not None:
            return self._driver
        self._advance()
        ready = self._ready
        if not ready:
            self._failure = Deadlock(f"every task waits for ever:\n{self.report()}")
            return self._driver
        place = int(self.rng.random() * len(ready))
        chosen, ready[place] = ready[place], ready[-1]
        ready.pop()
        return chosen

    def _advance(self) -> None:
        """Wakes tasks whose time-out has come. If no task is ready, or now and then at random, jumps to the next
        time-out."""
        timers = self._timers
        while timers and not (timers[0][2].parked and timers[0][2].ticket == timers[0][3]):
            heapq.heappop(timers)
        if not timers:
            return
        wait = timers[0][0] - self.now_us
        if wait > 0:
            stalled = self._stall_one_in and wait <= self._stall_us_max and self.rng.random() * self._stall_one_in < 1
            if self._ready and not stalled:
                return
            self.now_us = timers[0][0]
        while timers and timers[0][0] <= self.now_us:
            _, _, task, ticket = heapq.heappop(timers)
            if task.parked and task.ticket == ticket:
                task.timed_out = True
                self.wake(task, ticket)

    # ------------------------------------------------------------------ crashing

    def crash(self, group: Group) -> None:
        """Crashes all tasks of a group: each is unwound at once, and its calls while unwinding have no effect.
        Raises SimulatedCrash if the caller is one of them."""
        me = self._running
        if not group.dead:
            self.record(me, f"crash {group.name}")
        group.dead = True
        for task in list(group.tasks):
            if task is not me and not task.done:
                self._unwind(task)
        if me.group is group:
            self._refuse(me)
        self._bury(group)

    def _unwind(self, task: SimTask) -> None:
        if task in self._ready:
            self._ready.remove(task)
        task.parked = False
        task.ticket += 1
        me, task.heir = self._running, self._running
        self._give(task)
        me.baton.acquire()
        assert task.thread is not None
        if task.refusals <= _REFUSALS_MAX:
            task.thread.join()

    # ------------------------------------------------------------------ the record

    def record(self, task: SimTask, label: str) -> None:
        """Records a step."""
        task.doing = label
        self._steps.append((self.now_us, task.name, label))
        self._hash.update(f"{self.now_us} {task.name} {label}\n".encode())

    @property
    def digest(self) -> str:
        """A hash of all steps: equal digests mean equal runs."""
        return self._hash.hexdigest()

    def trace(self, last: int | None = None) -> list[str]:
        """Returns the kept steps, or the last few: virtual µs, task, action."""
        steps = list(self._steps)
        return [f"{time:>10} {name} {label}" for time, name, label in (steps if last is None else steps[-last:])]

    def report(self) -> str:
        """Returns what each living task is doing, with its stack."""
        return stacks([task for group in self._groups for task in group.tasks if not task.done])
