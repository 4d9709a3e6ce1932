"""A disk of its own for the store, which can be full."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_ROOM_BYTES = 64 << 20  # beside what is there, as long as it is not full
_START_BYTES = 400 << 20  # before anything is there
_FULL_S = (0.2, 1.5)


class SmallDisk:
    """A disk in memory below the folder. Only root may mount one: without the right the fault is left out, and
    `left_out` says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        done = _mount("-t", "tmpfs", "-o", f"size={_START_BYTES}", "none", str(folder))
        self._mounted = done.returncode == 0
        self.left_out = [] if self._mounted else [f"disk full: {done.stderr.strip()}"]

    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        """See `conductor.Server.faults`."""
        self._resize(_ROOM_BYTES)
        return {} if not self._mounted else {"disk full": self.fill}

    def fill(self, rng: random.Random) -> None:
        """Leave no room, or hardly any, for a moment."""
        self._resize(rng.choice((0, 30_000, 300_000)))
        time.sleep(rng.uniform(*_FULL_S))
        self._resize(_ROOM_BYTES)

    def _resize(self, room_bytes: int) -> None:
        if not self._mounted:
            return
        disk = os.statvfs(self.folder)
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        done = _mount("-o", f"remount,size={used + room_bytes}", str(self.folder))
        if done.returncode and room_bytes == _ROOM_BYTES:  # else somebody wrote more than that meanwhile
            raise OSError(done.stderr.strip())

    def recover(self) -> None:
        """See `conductor.Server.recover`."""
        self._resize(_ROOM_BYTES)

    def lose_power(self) -> None:
        """See `conductor.Server.lose_power`: `torture.power` sees to the files."""

    def close(self) -> None:
        """Take it away with all that is on it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
