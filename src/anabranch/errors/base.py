"""The root of the tree, and kinds that others belong to."""

from __future__ import annotations

from typing import Any


class AnabranchError(Exception):
    """The root of the tree. `str()` is one sentence for a person; fields carry the parts for a program. Errors can be
    pickled, so that they reach whoever waits in another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not from its arguments, as exceptions are: they are the sentence, which `__init__` would put into another.
        return _unpickled, (type(self), self.args), self.__dict__


class NotFound(AnabranchError, LookupError):
    """What was named does not exist."""

    def __str__(self) -> str:  # LookupError's repr-like text is not for people
        return str(self.args[0]) if self.args else type(self).__name__


class AlreadyExists(AnabranchError):
    """What was to be created is already there."""


def _unpickled(kind: type[AnabranchError], args: tuple[Any, ...]) -> AnabranchError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error
