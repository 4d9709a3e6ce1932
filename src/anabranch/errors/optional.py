"""Imports of optional dependencies, with one error where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.errors.arguments import MissingExtra

__all__ = ["optional"]


@contextmanager
def optional(feature: str, extra: str | None = None, *, package: str | None = None) -> Iterator[None]:
    """For a `with` around imports that `feature` needs: raises MissingExtra if one of the modules is not installed, or can't
    be loaded. `extra` and `package` are those of MissingExtra.

    A signal during the import stays what its handler raised, such as KeyboardInterrupt: extension modules replace
    it with an ImportError."""
    try:
        yield
    except ImportError as exc:
        if isinstance(exc, MissingExtra):
            raise
        stopped = _stopped_by(exc)
        if stopped is not None:
            raise stopped from None
        if (exc.name or "").partition(".")[0] == "anabranch":  # a defect of ours, not a missing package
            raise
        reason = None if isinstance(exc, ModuleNotFoundError) else str(exc)
        raise MissingExtra(feature, extra, package=package, reason=reason) from exc


def _stopped_by(exc: BaseException) -> BaseException | None:
    """The KeyboardInterrupt or SystemExit of which the error is a consequence."""
    cause = exc.__cause__ or exc.__context__
    while cause is not None and isinstance(cause, Exception):
        cause = cause.__cause__ or cause.__context__
    return cause
