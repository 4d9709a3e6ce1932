"""Notifications of commits between the processes of a machine: each writes to the lock file, which followers watch."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.runtime.file_watch import FileWatch
from anabranch.runtime.ports import Runtime

_PAUSE_S: Final = 0.0005  # between two calls: commits in between share the next one


class FileListener:
    """Calls `changed` on a task of its own after each write to a file. Raises OSError where the system can't watch it."""

    def __init__(self, path: Path, runtime: Runtime, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks = runtime.tasks
        self._watch = FileWatch(path)
        try:
            self._stop, self._stopped = socket.socketpair()
        except BaseException:
            self._watch.close()
            raise
        try:
            self._task = runtime.tasks.spawn("listener", self._run)
        except BaseException:
            self._release()
            self._stop.close()
            raise

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._watch, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(limits.CONDITION_WAIT_S)]
                if self._stopped in ready:
                    break
                if not ready:
                    continue
                self._watch.drain()
                with suppress(AnabranchError):  # the next reader gets the error too
                    self._changed()
                self._tasks.sleep(_PAUSE_S)
        self._release()

    def _release(self) -> None:
        self._watch.close()
        self._stopped.close()

    def close(self) -> None:
        """Stop listening. A second close is harmless."""
        self._stop.close()
        self._task.join(limits.TASK_END_S)
