"""Leases of DataFrames: renewed in the background, and released when their time or the session ends."""

from __future__ import annotations

import atexit
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.store.engine_api import HeldLease

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["keep_renewed"]

_PERIOD_S: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    hold: HeldLease
    until: float
    spark: SparkSession

    def over(self, now: float) -> bool:
        # Spark has no public API to ask whether a session was stopped.
        stopped = getattr(self.spark.sparkContext, "_jsc", None) is None
        return stopped or now >= self.until


_kept: set[_Kept] = set()
_lock = threading.Lock()
_loop: Periodic | None = None


def keep_renewed(spark: SparkSession, hold: HeldLease, seconds: float) -> None:
    """Renew an entered lease for `seconds`, or until the session or the process ends, then leave it."""
    global _loop
    with _lock:
        _kept.add(_Kept(hold, time.monotonic() + seconds, spark))
        if _loop is None:
            atexit.register(_leave_all)
            _loop = Periodic(Runtime(), "renewal of the leases of DataFrames", _pause_s, _renew_all)
            _loop.start()
    _loop.wake()


def _pause_s() -> float:
    """The time until the next renewal, or until the end of a lease."""
    now = time.monotonic()
    with _lock:
        return min(_PERIOD_S, min((each.until for each in _kept), default=now + _PERIOD_S) - now)


def _renew_all() -> None:
    now = time.monotonic()
    with _lock:
        kept = list(_kept)
    for each in kept:
        if each.over(now):
            _leave(each)
        else:
            try:
                each.hold.renew()
            except AnabranchError:
                # It expired, or the store is gone: later reads fail in Spark with a missing file.
                _leave(each)


def _leave(kept: _Kept) -> None:
    with _lock:
        if kept not in _kept:
            return
        _kept.discard(kept)
    kept.hold.__exit__(None, None, None)


def _leave_all() -> None:
    for each in list(_kept):
        _leave(each)
