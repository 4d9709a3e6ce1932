"""What the parts of a remote store take from it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from anabranch.remote.connection import Connection
from anabranch.runtime.ports import Runtime
from anabranch.store.facade import Closing

H = TypeVar("H", bound=Closing)


class Owner(Protocol):
    """A remote store. It closes what it keeps when it is closed."""

    connection: Connection
    runtime: Runtime

    def keep(self, opened: H) -> H:
        """Close it with the store, and return it. Raises Closed."""
        ...

    def forget(self, opened: Closing) -> None:
        """It was closed."""
        ...
