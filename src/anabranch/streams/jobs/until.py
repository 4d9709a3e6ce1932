"""When a copy that follows its source has followed it long enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Until:
    """The first of these that is reached ends it; None never does. `idle_s`: so long nothing new came. `for_s`: so long
    this run has followed. `events`: so many new events were copied."""

    idle_s: float | None = None
    for_s: float | None = None
    events: int | None = None

    def __post_init__(self) -> None:
        for name in ("idle_s", "for_s", "events"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise InvalidArgument(f"{name}= is at least 0, not {value}")

    def reached(self, *, idle_s: float, ran_s: float, events: int) -> bool:
        """True if it is over."""
        return (
            (self.idle_s is not None and idle_s >= self.idle_s)
            or (self.for_s is not None and ran_s >= self.for_s)
            or (self.events is not None and events >= self.events)
        )

    def to_json(self) -> dict[str, Any]:
        """As a job's row keeps it."""
        return {"idle_s": self.idle_s, "for_s": self.for_s, "events": self.events}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Until:
        """The inverse of `to_json`."""
        return cls(value["idle_s"], value["for_s"], value["events"])
