"""What every open store does, whether it is opened here or served by a broker: it closes what was opened from it."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import TypeVar

from anabranch.core.closeable import Closeable, Closing
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Closed, Forked
from anabranch.runtime.ports import Runtime

C = TypeVar("C", bound=Closing)


class OpenStore(Displayed, Closeable):
    """A store that is open, and the writers, readers and others that were opened from it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._lock = runtime.tasks.lock()
        self._open: dict[Closing, None] = {}  # not a set: its order would differ from run to run
        self._closed = False
        self._ending = False  # a close is under way or finished
        self._at_exit: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Commit what was accepted, end background work, release files and connections. A second call does nothing; nor
        does a call in a forked child.

        Raises the first error of an accepted event that was not reported to any caller.
        """
        failures: list[AnabranchError] = []
        try:
            with self._lock:
                if self._ending:
                    return
                self._closed = self._ending = True
            for each in list(self._open):
                try:
                    each.close()
                except AnabranchError as exc:
                    failures.append(exc)
            self._close_parts()
        except Forked:  # everything open belongs to the parent
            return
        except BaseException:  # Ctrl-C: a second call or the interpreter's exit does the rest
            self._ending = False
            raise
        atexit.unregister(self._at_exit)
        if failures:
            raise failures[0]

    def _close_parts(self) -> None:
        """Close what the store itself consists of, after what was opened from it."""
        raise NotImplementedError

    def _keep(self, opened: C) -> C:
        """Register an object to be closed with the store, and return it. Raises Closed."""
        with self._lock:
            if not self._closed:
                self._open[opened] = None
                return opened
        opened.close()  # the store was closed while this was being opened
        raise Closed("store")

    def _forget(self, opened: Closing) -> None:
        """Unregister an object that was closed."""
        self._open.pop(opened, None)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("store")

    def _close_at_exit(self) -> None:
        """Have the interpreter close the store at its exit, without keeping it alive until then."""
        alive = weakref.ref(self)

        def close() -> None:
            if (found := alive()) is not None:
                found.close()

        self._at_exit = close
        atexit.register(close)
