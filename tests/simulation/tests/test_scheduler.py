"""The simulation's own promises: one seed one run, virtual time, deadlocks told, a crash leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from anabranch.testing.faults import SimulatedCrash
from tests.simulation.ports import SimClock, SimTasks
from tests.simulation.scheduler import Deadlock, Scheduler, StepsExceeded, TaskFailed

pytestmark = pytest.mark.sim


def busy_world(seed: int) -> Scheduler:
    """Producers and consumers over a condition, with sleeps, locks and a crash."""
    scheduler = Scheduler(seed)
    group, doomed = scheduler.group("p"), scheduler.group("q")
    tasks = SimTasks(scheduler, group)

    def process() -> None:
        ready, queue, lock = tasks.condition(), [], tasks.lock()

        def produce() -> None:
            for i in range(20):
                with ready:
                    queue.append(i)
                    ready.notify_all()
                if i % 5 == 0:
                    tasks.sleep(0.001)

        def consume() -> None:
            for _ in range(20):
                with ready:
                    while not queue:
                        ready.wait(0.01)
                    queue.pop()
                with lock:
                    tasks.sleep(0.0001)

        for each in [tasks.spawn(f"t{i}", work) for i, work in enumerate([produce, consume, produce, consume])]:
            assert each.join()

    def forever() -> None:
        own = SimTasks(scheduler, doomed)
        while True:
            own.sleep(0.002)

    def main() -> None:
        scheduler.spawn("forever", forever, doomed)
        work = scheduler.spawn("process", process, group)
        scheduler.join(work, 0.005, scheduler.enter().group)
        scheduler.crash(doomed)
        scheduler.join(work, None, scheduler.enter().group)

    scheduler.run(main)
    return scheduler


@pytest.mark.parametrize("seed", range(5))
def test_one_seed_gives_one_trace(seed: int) -> None:
    first, second = busy_world(seed), busy_world(seed)
    assert first.trace() == second.trace()
    assert first.digest == second.digest
    assert first.steps > 200


def test_other_seeds_give_other_traces() -> None:
    assert len({busy_world(seed).digest for seed in range(5)}) == 5


def run(work: Callable[[Scheduler, SimTasks], None], seed: int = 1, **options: int) -> Scheduler:
    """Run `work` as a process of a fresh world."""
    scheduler = Scheduler(seed, **options)
    group = scheduler.group("p")

    def main() -> None:
        task = scheduler.spawn("work", lambda: work(scheduler, SimTasks(scheduler, group)), group)
        scheduler.join(task, None, scheduler.enter().group)

    scheduler.run(main)
    return scheduler


def test_waiting_an_hour_takes_no_time() -> None:
    began = time.monotonic()

    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        clock = SimClock(scheduler)
        stamp, moment = clock.now(), clock.monotonic()
        tasks.sleep(3600)
        with (condition := tasks.condition()):
            assert not condition.wait(60)
        assert 3660 <= clock.monotonic() - moment < 3661
        assert 3_660_000_000 <= clock.now() - stamp < 3_661_000_000

    run(work)
    assert time.monotonic() - began < 600  # of the hour and a minute that it waited


def test_time_outs_come_in_order_of_their_deadlines() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        order: list[int] = []

        def wait(ms: int) -> None:
            tasks.sleep(ms / 1000)
            order.append(ms)

        for each in [tasks.spawn("wait", partial(wait, ms)) for ms in (50, 10, 30)]:
            each.join()
        assert order == [10, 30, 50]

    for seed in range(10):
        run(work, seed)


def test_a_lock_excludes_in_every_order() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        lock, inside = tasks.lock(), [0]

        def enter() -> None:
            with lock:
                inside[0] += 1
                tasks.sleep(0.001)
                assert inside[0] == 1
                inside[0] -= 1

        for each in [tasks.spawn("enter", enter) for _ in range(5)]:
            each.join()
        assert lock.acquire(blocking=False)
        assert not lock.acquire(blocking=False)
        lock.release()

    for seed in range(10):
        run(work, seed)


def test_a_join_times_out() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        slow = tasks.spawn("slow", lambda: tasks.sleep(1))
        assert not slow.join(0.5)
        assert slow.join()

    run(work)


def test_a_deadlock_is_reported_with_every_stack() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        first, second = tasks.lock(), tasks.lock()

        def one_way() -> None:
            with first:
                tasks.sleep(0.01)
                with second:
                    pass

        def other_way() -> None:
            with second:
                tasks.sleep(0.01)
                with first:
                    pass

        for each in [tasks.spawn("one", one_way), tasks.spawn("other", other_way)]:
            each.join()

    with pytest.raises(Deadlock) as caught:
        run(work, 7)
    text = str(caught.value)
    assert "p.one: wait lock" in text
    assert "p.other: wait lock" in text
    assert "one_way: with second" in text
    assert "seed 7" in "".join(caught.value.__notes__)


def test_a_task_that_spins_is_reported() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        while True:
            tasks.sleep(0)

    with pytest.raises(StepsExceeded, match="work"):
        run(work, steps_max=1000)


def test_an_error_in_a_task_ends_the_run() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        def fail() -> None:
            raise ValueError("wound")

        tasks.spawn("fail", fail).join()
        tasks.sleep(1)

    with pytest.raises(TaskFailed, match="wound") as caught:
        run(work)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_crash_ends_every_task_of_the_process_and_nothing_else() -> None:
    log: list[str] = []
    scheduler = Scheduler(3)
    dying, living = scheduler.group("dying"), scheduler.group("living")
    here, there = SimTasks(scheduler, dying), SimTasks(scheduler, living)
    dying.on_dead.append(lambda: log.append("buried"))

    def clean_up() -> None:
        try:
            here.sleep(100)
        finally:
            for attempt in (lambda: here.sleep(1), lambda: here.spawn("late", lambda: None), here.lock().acquire):
                with pytest.raises(SimulatedCrash):
                    attempt()
            log.append("unwound")

    def live_on() -> None:
        there.sleep(200)
        log.append("living")

    def main() -> None:
        survivor = scheduler.spawn("live_on", live_on, living)
        group = scheduler.enter().group
        for _ in range(2):
            scheduler.spawn("clean_up", clean_up, dying)
        while sum(task.parked for task in dying.tasks) < 2:
            scheduler.point("let them begin", group)
        scheduler.spawn("unborn", lambda: log.append("born"), dying)
        scheduler.crash(dying)
        assert log == ["unwound", "unwound", "buried"]
        assert dying.tasks == []
        scheduler.join(survivor, None, group)

    scheduler.run(main)
    assert log == ["unwound", "unwound", "buried", "living"]


def test_a_task_that_crashes_its_own_process_dies_too() -> None:
    log: list[str] = []
    scheduler = Scheduler(3)
    group = scheduler.group("p")

    def work() -> None:
        scheduler.crash(group)
        log.append("alive")

    def main() -> None:
        task = scheduler.spawn("work", work, group)
        scheduler.join(task, None, scheduler.enter().group)

    scheduler.run(main)
    assert log == []


def test_a_task_may_not_use_the_ports_of_another_process() -> None:
    scheduler = Scheduler(1)
    foreign = SimTasks(scheduler, scheduler.group("p"))
    with pytest.raises(RuntimeError, match="spawn a task there instead"):
        scheduler.run(lambda: foreign.sleep(1))


def test_a_task_that_swallows_its_crash_is_reported() -> None:
    scheduler = Scheduler(1)
    group = scheduler.group("p")
    tasks = SimTasks(scheduler, group)

    def immortal() -> None:
        while True:
            try:
                tasks.sleep(1)
            except BaseException:
                continue

    def main() -> None:
        scheduler.spawn("immortal", immortal, group)
        for _ in range(5):
            scheduler.point("wait", scheduler.enter().group)
        scheduler.crash(group)

    with pytest.raises(TaskFailed, match="goes on after its process crashed"):
        scheduler.run(main)


def test_thousands_of_steps_a_second() -> None:
    def work(scheduler: Scheduler, tasks: SimTasks) -> None:
        def step() -> None:
            for _ in range(2_000):
                tasks.sleep(0)

        for each in [tasks.spawn("step", step) for _ in range(4)]:
            each.join()

    began = time.process_time()  # whatever else the machine does
    steps = run(work).steps
    rate = steps / (time.process_time() - began)
    print(f"{rate:,.0f} steps a second of CPU time")
    assert rate > 2_000
