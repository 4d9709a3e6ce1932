"""Closes readers and writers that a call has opened if the caller is gone before the call can use them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar


class Closable(Protocol):
    """A resource that can be closed."""

    def close(self) -> object:
        """A second call does nothing."""
        ...


C = TypeVar("C", bound=Closable)
R = TypeVar("R")


async def open_in_thread(threads: Executor, opening: Callable[[], C]) -> C:
    """Open a resource in a thread, which can't be stopped: if this task is cancelled meanwhile, the resource is closed
    once it is open."""
    opened = asyncio.get_running_loop().run_in_executor(threads, opening)
    try:
        return await asyncio.shield(opened)
    except asyncio.CancelledError:
        opened.add_done_callback(_close)
        raise


def closed_with(results: R, close: Callable[[], object]) -> R:
    """Return `results`, a generator, and have `close` called once the generator is no longer referenced: the `finally`
    of a generator that was never started does not run."""
    weakref.finalize(results, close).atexit = False
    return results


def _close(opened: asyncio.Future[C]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        opened.result().close()
