"""What the front ends of a broker share."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch import limits
from anabranch.security.guard import Guard, Principal
from anabranch.server.drain import Drain
from anabranch.server.load.stream_loads import StreamLoads
from anabranch.store.facade import Store


@dataclass(frozen=True, slots=True)
class Broker:
    """A store, and who may use it. Every front end (Flight, gRPC, HTTP) is given one, and holds no state of its own
    that another broker would need. `drain` tells calls without an end of their own when the broker ends; `loads` holds
    appends to the load policies of their streams. An unfinished upload is removed `upload_lifetime_s` seconds after its
    last request; None: never."""

    store: Store
    guard: Guard
    upload_lifetime_s: float | None = limits.UPLOAD_LIFETIME_S
    drain: Drain = field(default_factory=Drain)
    loads: StreamLoads = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loads", StreamLoads(self.store))

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """See `Guard.record`."""
        self.guard.record(principal, verb, resource, error)
