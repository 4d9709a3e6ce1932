"""Exceptions that are thrown into a thread from outside, such as by a time limit of the application or by Ctrl-C.

One may strike between any two instructions of a write or a commit. Unlike an error of the work itself, it says nothing
about the events: the work is done, or repeated, and only then is the exception raised.
"""

from __future__ import annotations

from anabranch.errors import AnabranchError, StoreUnavailable


def may_be_interruption(exc: Exception) -> bool:
    """True if the exception may have been thrown in from outside."""
    return not isinstance(exc, AnabranchError | MemoryError)


def as_append_error(exc: Exception) -> AnabranchError:
    """The cause of a failed append, as an error of the store."""
    if isinstance(exc, AnabranchError):
        return exc
    error = StoreUnavailable(f"the append failed: {exc!r}")
    error.__cause__ = exc
    return error
