"""Translates errors of the operating system to the store's own errors, by errno, in this one place."""

from __future__ import annotations

import errno
from typing import Final

from anabranch.errors.storage import DiskFull, ReadOnlyStore, StoreUnavailable

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The last three: the path exists, but is not the expected folder or file.
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
_HINTS: Final = {
    errno.EMFILE: "this process has reached its limit of open files; raise it (ulimit -n) or open fewer stores",
    errno.ENFILE: "this machine has reached its limit of open files",
    errno.ENOLCK: "the file system can't lock files; a store's folder needs one that supports flock",
}


def unavailable(exc: OSError, failure: str) -> StoreUnavailable:
    """Return a DiskFull, a ReadOnlyStore, or a plain StoreUnavailable, to be raised from `exc`. `failure` says what
    failed, as a sentence without its full stop. An error that is already a StoreUnavailable is returned unchanged."""
    if isinstance(exc, StoreUnavailable):
        return exc
    number = exc.errno or 0
    text = f"{failure}: {exc.strerror or exc}"
    if number in _HINTS:
        text += f" ({_HINTS[number]})"
    if number in _FULL:
        return DiskFull(text)
    return ReadOnlyStore(text) if number in _READ_ONLY else StoreUnavailable(text)
