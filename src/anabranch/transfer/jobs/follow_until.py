"""The condition that ends a copy which follows its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.model.amounts import check_number
from anabranch.model.seconds import check_seconds


@dataclass(frozen=True, slots=True)
class Until:
    """The first condition that is met ends the copy; None is never met. `idle_s`: seconds without new events. `for_s`:
    seconds that this run has followed. `events`: number of new events copied."""

    idle_s: float | None = None
    for_s: float | None = None
    events: int | None = None

    def __post_init__(self) -> None:
        if self.events is not None:
            check_number("events", self.events)
        for name in ("idle_s", "for_s"):
            if (value := getattr(self, name)) is not None:
                check_seconds(name, value)
                if value < 0:
                    raise InvalidArgument(f"expected {name}= of at least 0, got {value}")

    def reached(self, *, idle_s: float, ran_s: float, events: int) -> bool:
        """True if a condition is met."""
        return (
            (self.idle_s is not None and idle_s >= self.idle_s)
            or (self.for_s is not None and ran_s >= self.for_s)
            or (self.events is not None and events >= self.events)
        )

    def to_json(self) -> dict[str, Any]:
        """As stored in a job's row."""
        return {"idle_s": self.idle_s, "for_s": self.for_s, "events": self.events}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Until:
        """The inverse of `to_json`."""
        return cls(value["idle_s"], value["for_s"], value["events"])
