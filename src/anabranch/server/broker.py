"""What the front ends of a broker share."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.security.guard import Guard
from anabranch.server.drain import Drain
from anabranch.store.facade import Store


@dataclass(frozen=True, slots=True)
class Broker:
    """A store, and who may use it. Every front end (Flight, gRPC, HTTP) is given one, and holds no state of its own
    that another broker would need. `drain` tells calls without an end of their own when the broker ends."""

    store: Store
    guard: Guard
    drain: Drain = field(default_factory=Drain)
