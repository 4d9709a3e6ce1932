"""Objects that are closed at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

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
