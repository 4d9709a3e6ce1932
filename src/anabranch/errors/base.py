"""The root of the error tree, and the base classes shared by several errors."""

from __future__ import annotations

from typing import Any


class AnabranchError(Exception):
    """The root of the tree. `str()` is one sentence for a person; fields carry the details for a program. Errors can be
    pickled, so they can be passed to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, `__init__` gets the arguments: here that is the finished sentence, which it would wrap again.
        return _unpickled, (type(self), self.args), self.__dict__


class NotFound(AnabranchError, LookupError):
    """The named object does not exist."""

    def __str__(self) -> str:  # LookupError's text is a repr, unsuitable for people
        return str(self.args[0]) if self.args else type(self).__name__


class AlreadyExists(AnabranchError):
    """The object to be created already exists."""


def _unpickled(kind: type[AnabranchError], args: tuple[Any, ...]) -> AnabranchError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error
