"""Objects that are closed at the end of a `with` block, or if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from anabranch.errors import AnabranchError


class Closeable:
    """Gives a class that has `close` the `with` block. An error of the block is not replaced by one of `close`."""

    __slots__ = ()

    def close(self) -> None:
        """See the class."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AnabranchError:
            if error is None:
                raise


class Closing(Protocol):
    """Anything that is closed when it is no longer needed."""

    def close(self) -> None:
        """Close it. A second call does nothing."""
        ...


@contextmanager
def closed_on_error(*opened: Closing) -> Iterator[None]:
    """Closes these if the block fails."""
    try:
        yield
    except BaseException:
        for each in opened:
            each.close()
        raise
