"""Followers, and coroutines: woken by what comes, ended by a seal or by being closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import errors
from tests.store.reading.kit import (
    assert_order_of_keys,
    create,
    numbers,
    reader,
    write,
)
from tests.waiting import PATIENCE_S, until, until_ended

# following


def test_a_follower_is_woken_and_discovers_new_segments(store: ab.Store) -> None:
    create(store)
    seen: list[int] = []
    with reader(store, follow=True) as follower:

        def follow() -> None:
            seen.extend(event.body["n"] for event in follower)

        thread = threading.Thread(target=follow)
        thread.start()
        at = 0
        for segments in (2, 1, 3):
            write(store, at, 100, size=10)
            at += 100
            store.streams.scale("s/a", segments=segments)
        write(store, at, 100, size=10)
        until(lambda: len(seen) >= at + 100)
        follower.close()
        until_ended(thread)
    assert sorted(seen) == list(range(at + 100))
    assert_order_of_keys(seen)


def test_closing_wakes_a_blocked_follower(store: ab.Store) -> None:
    create(store)
    follower = reader(store, follow=True)
    batches = follower.batches()  # while it is open: from then on a close ends the iteration, whenever it comes
    thread = threading.Thread(target=lambda: list(batches))
    thread.start()
    time.sleep(0.05)  # it waits by then, or not yet: either way it must end
    assert thread.is_alive()
    follower.close()
    follower.close()
    until_ended(thread)
    for use in (lambda: iter(follower), follower.batches, follower.read, follower.__aiter__):
        with pytest.raises(errors.Closed):
            use()


def test_a_follower_ends_when_the_stream_is_sealed(store: ab.Store) -> None:
    create(store)
    write(store, 0, 10)
    with reader(store, follow=True) as follower:
        thread = threading.Timer(0.1, lambda: store.streams.seal("s/a"))
        thread.start()
        assert numbers(follower.batches()) == list(range(10))
        thread.join()


def test_read_waits_as_long_as_it_is_asked_to(store: ab.Store) -> None:
    create(store)
    with reader(store, follow=True) as follower:
        assert follower.read() is None
        began = time.monotonic()
        assert follower.read(0.1) is None  # and comes back, as nothing is ever written here
        assert time.monotonic() - began > 0.09
        write(store, 0, 10)
        batch = follower.read(60)
        assert batch is not None
        assert batch.num_rows == 10


@pytest.mark.process
def test_a_follower_in_another_process_is_aware_of_each_commit(tmp_path: Path) -> None:
    """How soon depends on the machine, and is a figure of the bench."""
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        create(store)
        script = (
            "import anabranch as ab, sys\n"
            f"with ab.connect({str(tmp_path)!r}, create=True) as store, store.reader('s/a', follow=True) as reader:\n"
            "    print('open', flush=True)\n"
            "    for event in reader: print(event.body['n'], flush=True)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            for n in range(20):
                time.sleep(0.02)  # it may rest between its looks by then
                write(store, n, 1)
                assert other.stdout.readline() == f"{n}\n"
            other.kill()


# coroutines


async def test_events_and_batches_come_to_coroutines(store: ab.Store) -> None:
    create(store, segments=2)
    write(store, 0, 500)
    async with reader(store) as some:
        assert sorted([event.body["n"] async for event in some]) == list(range(500))
    async with reader(store) as some:
        assert sorted(numbers([batch async for batch in some.batches()])) == list(range(500))


async def test_a_waiting_coroutine_leaves_the_loop_free_and_its_cancelling_loses_nothing(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        seen: list[int] = []

        async def consume() -> None:
            async for event in some:
                seen.append(event.body["n"])  # noqa: PERF401  (a cancelled comprehension would lose what it has)

        for round_ in range(5):
            task = asyncio.create_task(consume())
            ticks = 0
            for _ in range(5):
                await asyncio.sleep(0.01)
                ticks += 1
            assert ticks == 5
            if round_ % 2:
                await asyncio.to_thread(write, store, round_ * 10, 10)
                while len(seen) < (round_ // 2 + 1) * 10:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    assert seen == [*range(10, 20), *range(30, 40)]


async def test_a_cancelled_coroutine_leaves_nobody_waiting_in_its_place(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        task = asyncio.ensure_future(anext(aiter(some)))
        await asyncio.sleep(0.05)
        with pytest.raises(errors.InvalidArgument, match="already has a consumer"):
            some.batches()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert some.read() is None
        write(store, 0, 10)
        assert numbers([some.read(60)]) == list(range(10))


async def test_closing_ends_a_waiting_coroutine(store: ab.Store) -> None:
    create(store)
    some = reader(store, follow=True)

    async def consume() -> list[int]:
        return [event.body["n"] async for event in some]

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    some.close()
    assert await asyncio.wait_for(task, PATIENCE_S) == []


async def test_an_error_reaches_the_coroutine(store: ab.Store) -> None:
    create(store)
    async with reader(store, follow=True) as some:
        store.streams.delete("s/a")
        with pytest.raises(errors.StreamNotFound):
            async for _ in some:
                pass
