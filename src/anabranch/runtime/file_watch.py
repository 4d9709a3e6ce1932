"""Watches one file for writes, by Linux's inotify(7)."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Final

_MODIFIED: Final = 0x2  # IN_MODIFY
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have the same values
_BYTES_MAX: Final = 4_096  # of events read at once; each takes 16


class FileWatch:
    """Becomes readable (for `select`) after the file was written to, by any process of this machine. Writes by other
    machines of a network file system are not noticed."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the system can't watch the file."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "files can't be watched on this system")
        libc = ctypes.CDLL(None, use_errno=True)
        self._file: int = libc.inotify_init1(_FLAGS)
        if self._file < 0:
            raise _last_error("inotify_init1")
        if libc.inotify_add_watch(self._file, os.fsencode(path), _MODIFIED) < 0:
            error = _last_error("inotify_add_watch")
            os.close(self._file)
            raise error

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._file

    def drain(self) -> None:
        """Forget the writes so far."""
        try:
            while len(os.read(self._file, _BYTES_MAX)) == _BYTES_MAX:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Stop watching."""
        os.close(self._file)


def _last_error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
