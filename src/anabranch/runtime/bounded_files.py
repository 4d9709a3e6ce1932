"""Reads small files as a whole, of whatever kind the path turns out to be: never more than they may have, and never for ever."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable
from typing import Final

from anabranch import limits

__all__ = ["read_bounded", "read_whole", "to_text"]

_READ_BYTES: Final = 1 << 20
_MARK: Final = "\ufeff"  # with which some editors begin a file


def read_bounded(
    path: str | os.PathLike[str], bytes_max: int, *, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """The content of a file or pipe; `check` first sees its status. Raises OSError, with the reason as a phrase: also for a
    folder, for more than `bytes_max` bytes, and for a pipe to which nothing is written for `limits.PIPE_WAIT_S`."""
    # Without O_NONBLOCK, a pipe to which nobody writes would keep `open` waiting.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as exc:  # the path holds a NUL
        raise OSError(errno.EINVAL, str(exc)) from exc
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if check is not None:
            check(status)
        waits = not stat.S_ISREG(status.st_mode)
        waiting = select.poll()  # `select.select` takes no descriptor above 1,023
        waiting.register(handle, select.POLLIN)

        def read(size: int) -> bytes:
            if waits and not waiting.poll(limits.PIPE_WAIT_S * 1_000):
                raise OSError(errno.ETIMEDOUT, f"nothing was written to the pipe for {limits.PIPE_WAIT_S:g} s")
            return os.read(handle, size)

        return read_whole(read, bytes_max)
    finally:
        os.close(handle)


def read_whole(read: Callable[[int], bytes], bytes_max: int) -> bytes:
    """All that `read` returns, up to an empty result; it is given the number of bytes for one call. Raises OSError for more
    than `bytes_max` bytes."""
    parts, size = [], 0
    while data := read(_READ_BYTES):
        parts.append(data)
        size += len(data)
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {bytes_max:,} bytes, the limit")
    return b"".join(parts)


def to_text(content: bytes) -> str:
    """The text of a file, which is UTF-8, without a byte order mark and with line ends as `\\n`. Raises OSError for anything
    else."""
    try:
        return content.decode("utf-8").removeprefix(_MARK).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise OSError(errno.EILSEQ, f"it is not UTF-8 text: byte 0x{content[exc.start]:02x} in line {line}") from exc
