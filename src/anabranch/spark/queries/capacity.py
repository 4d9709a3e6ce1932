"""What a machine has for queries: its processors and memory, or less where its control group sets a limit."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch.deployments.admission import HostCapacity

__all__ = ["machine_capacity"]

_SHARE: Final = 0.8  # of the memory; the rest is for the host, the system and its cache
_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMORY_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")


def machine_capacity(
    cpus: float | None = None, memory: int | None = None, groups: Collection[str] | None = None
) -> HostCapacity:
    """The given capacity. What is not given is taken from this machine: all processors that this process may use, and
    four fifths of the memory. `groups` are those that the host serves, None or empty: all."""
    return HostCapacity(
        _cpus() if cpus is None else cpus,
        int(_memory() * _SHARE) if memory is None else memory,
        frozenset(groups) if groups else None,
    )


def _cpus() -> float:
    count = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with suppress(OSError, ValueError, ZeroDivisionError):  # no limit, or no control groups
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        count = min(count, int(quota) / int(period))
    return count


def _memory() -> int:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError):
            size = min(size, int((_CGROUP / name).read_text()))
    return size
