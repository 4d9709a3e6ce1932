"""A separate small disk for the store, which can be filled up."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_SIZE_BYTES = 2 << 30  # while it is not full; an upper bound, memory is used only for what is written
_FULL_S = (0.2, 1.5)


class SmallDisk:
    """A disk in memory below the folder. Only root may mount one: without that permission the fault is left out, and
    `left_out` says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        done = _mount("-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "none", str(folder))
        self._mounted = done.returncode == 0
        self.left_out = [] if self._mounted else [f"disk full: {done.stderr.strip()}"]

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """See `conductor.Server.faults`."""
        return {} if not self._mounted else {"disk full": self.fill}

    def fill(self, rng: random.Random) -> None:
        """Leaves no room, or hardly any, for a moment."""
        disk = os.statvfs(self.folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        # If more than that is written meanwhile, the size is not changed. A size of zero would mean no limit.
        size = max(used + rng.choice((0, 30_000, 300_000)), 1)
        _mount("-o", f"remount,size={size}", str(self.folder))
        time.sleep(rng.uniform(*_FULL_S))
        self.recover()

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        if self._mounted:
            done = _mount("-o", f"remount,size={_SIZE_BYTES}", str(self.folder))
            if done.returncode:
                raise OSError(done.stderr.strip())

    def lose_power(self) -> None:
        """See `conductor.Server.lose_power`: `torture.power` handles the files."""

    def close(self) -> None:
        """Unmounts it, with everything on it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
