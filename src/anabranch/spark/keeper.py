"""Leases of DataFrames: kept alive beside the program, and given back when their time or the session is over."""

from __future__ import annotations

import atexit
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.log.lease import Hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["keep"]

_PERIOD_S: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    hold: Hold
    until: float
    spark: SparkSession

    def over(self, now: float) -> bool:
        # Spark has no public word for a session that was stopped.
        stopped = getattr(self.spark.sparkContext, "_jsc", None) is None
        return stopped or now >= self.until


_kept: set[_Kept] = set()
_changed = threading.Condition()
_keeper: threading.Thread | None = None


def keep(spark: SparkSession, hold: Hold, seconds: float) -> None:
    """Renew an entered lease for so many seconds or until the session ends, then leave it; leave it too when the
    process ends."""
    global _keeper
    with _changed:
        _kept.add(_Kept(hold, time.monotonic() + seconds, spark))
        if _keeper is None:
            atexit.register(_leave_all)
            _keeper = threading.Thread(target=_run, name="anabranch-leases", daemon=True)
            _keeper.start()
        _changed.notify()


def _run() -> None:
    while True:
        with _changed:
            now = time.monotonic()
            next_end = min((each.until for each in _kept), default=now + _PERIOD_S)
            _changed.wait(max(0.0, min(_PERIOD_S, next_end - now)))
            kept = list(_kept)
        now = time.monotonic()
        for each in kept:
            if each.over(now):
                _leave(each)
            else:
                try:
                    each.hold.renew()
                except AnabranchError:
                    # It ran out, or the store is gone: whoever reads on is told by Spark that a file is missing.
                    _leave(each)


def _leave(kept: _Kept) -> None:
    with _changed:
        if kept not in _kept:
            return
        _kept.discard(kept)
    kept.hold.__exit__(None, None, None)


def _leave_all() -> None:
    for each in list(_kept):
        _leave(each)
