"""A disk of its own for the store, which can be full."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_SIZE_BYTES = 2 << 30  # as long as it is not full; a bound, of which only what is written takes memory
_FULL_S = (0.2, 1.5)


class SmallDisk:
    """A disk in memory below the folder. Only root may mount one: without the right the fault is left out, and
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
        """Leave no room, or hardly any, for a moment."""
        disk = os.statvfs(self.folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        # Where somebody writes more than that meanwhile, it stays as it is. Zero would be no limit at all, for ever.
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
        """See `conductor.Server.lose_power`: `torture.power` sees to the files."""

    def close(self) -> None:
        """Take it away with all that is on it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
