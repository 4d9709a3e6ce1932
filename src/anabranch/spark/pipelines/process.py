"""Finds out whether a process of this machine still runs. The id alone is not enough: it may belong to a zombie, or to
another process by now.

Uses psutil, which comes with the extra `spark`. Listing pipelines needs no extra: without psutil only the id is
checked.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["is_running", "started_us"]

# The machine's boot time is known in whole seconds, so two readings of a process's start may differ by two seconds.
_TOLERANCE_US: Final = 2_000_000


def started_us(pid: int) -> int | None:
    """When the process was started, in µs after the machine's boot, so that changes of the clock have no effect. None
    if the process is gone or can't be inspected."""
    try:
        import psutil

        return round((psutil.Process(pid).create_time() - psutil.boot_time()) * 1_000_000)
    except ImportError:
        return None
    except (psutil.Error, OSError):
        return None


def is_running(pid: int, started: int | None = None) -> bool:
    """True if a process with this id runs that was `started` at that time (see `started_us`; None: not known). False
    for a zombie, and for another process that has the id now. True if it can't be determined."""
    try:
        import psutil
    except ImportError:
        return _exists(pid)
    try:
        if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return False
    except psutil.NoSuchProcess:  # also raised for a zombie on some systems
        return False
    except (psutil.Error, OSError):
        return True
    now = started_us(pid)
    return started is None or now is None or abs(now - started) <= _TOLERANCE_US


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
