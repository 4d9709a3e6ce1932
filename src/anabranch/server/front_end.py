"""What the broker asks of each of its front ends: Flight, HTTP, gRPC, and of the host of queries."""

from __future__ import annotations

from typing import Protocol


class FrontEnd(Protocol):
    """A server of one protocol. `run` starts all, and on a signal drains all at the same time, then stops them."""

    @property
    def name(self) -> str:
        """`flight`, `http`, `grpc` or `queries`."""
        ...

    def start(self) -> str:
        """Listen and serve, in threads or processes of its own. Returns the address for clients once connections are
        accepted, with the real port where it was 0. Raises InvalidArgument if it can't listen there."""
        ...

    def failed(self) -> str | None:
        """Why it stopped serving without being stopped; None while it serves."""
        ...

    def drain(self, seconds: float) -> bool:
        """Accept no more, let the calls under way end, and wait for them. False if some are still under way after this
        time."""
        ...

    def stop(self) -> None:
        """End at once whatever is still under way, without waiting for callers. Also after `drain`."""
        ...
