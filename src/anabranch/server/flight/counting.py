"""Counts and logs the calls of the Flight server."""

from __future__ import annotations

import time
from typing import Any

from pyarrow import flight

from anabranch.server.counters import Counters
from anabranch.server.edge.access_log import AccessLog

COUNTING = "counting"
_REFUSALS = (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError, flight.FlightServerError)
_STREAMING = ("DO_GET", "DO_PUT", "DO_EXCHANGE")


class CallCounting(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Middleware of a Flight server."""

    def __init__(self, counters: Counters, log: AccessLog | None) -> None:
        super().__init__()
        self._counters = counters
        self._log = log

    def start_call(self, info: Any, headers: Any) -> Any:
        """Called by pyarrow at the start of each call."""
        del headers
        self._counters.began("flight")
        return _FlightCall(self._counters, self._log, info.method.name)


class _FlightCall(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, counters: Counters, log: AccessLog | None, method: str) -> None:
        super().__init__()
        self._counters = counters
        self._log = log
        self._method = method
        self._began = time.monotonic()

    def call_completed(self, exception: Any) -> None:
        """Called by pyarrow at its end."""
        taken = time.monotonic() - self._began
        outcome = "ok" if exception is None else "refused" if isinstance(exception, _REFUSALS) else "failed"
        self._counters.ended("flight", outcome, None if self._method in _STREAMING else taken)
        if self._log is not None:
            self._log.note(front_end="flight", method=self._method, outcome=outcome, ms=round(taken * 1000, 2))
