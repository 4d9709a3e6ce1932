"""Describes the measured machine, as far as it explains the numbers."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_LIBRARIES = ("apsw", "numpy", "obstore", "pyarrow", "pyspark", "redis", "nats-py", "confluent-kafka", "xxhash")


def describe(folder: Path) -> dict[str, str]:
    """Returns the description, by headings."""
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "disk": _disk(folder),
        "libraries": ", ".join(f"{name} {found}" for name in _LIBRARIES if (found := _version(name))),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _disk(folder: Path) -> str:
    """Returns the file system that holds the folder, and its device."""
    place = str(folder.resolve())
    mounts = [
        part for part in psutil.disk_partitions(all=True) if Path(place).is_relative_to(part.mountpoint) and part.fstype
    ]
    if not mounts:
        return "unknown"
    mount = max(mounts, key=lambda part: len(part.mountpoint))
    memory = ", which is memory: no figure that syncs means anything" if mount.fstype in ("tmpfs", "ramfs") else ""
    return f"{mount.fstype} on {Path(mount.device).name or 'a device without a name'}{memory}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
