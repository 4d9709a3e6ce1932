"""Where the events of a stream came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.model.ids import Micros, StreamId


class Ancestor(NamedTuple):
    """A stream from which a source's own events had come before: `how` (copied, appended, stitched, …) and when."""

    how: str
    at: Micros
    source: StreamId
    name: str


@dataclass(frozen=True, slots=True)
class OriginPart:
    """So many `events` of the stream `source`, which was called `name` then, between the cuts `start` and `end` (their
    texts). `name_now` is None once it is gone. `place`: where it lies or lay, if that is another store or an archive.
    `ancestors`, the nearest first, are those that its own events had come from by then."""

    source: StreamId
    name: str
    start: str
    end: str
    events: int
    place: str | None = None
    name_now: str | None = None
    ancestors: tuple[Ancestor, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As the catalog keeps it, and as programs are told."""
        return {
            "source": f"{self.source:016x}",
            "name": self.name,
            "from": self.start,
            "to": self.end,
            "events": self.events,
            "place": self.place,
            "ancestors": [[how, at, f"{source:016x}", name] for how, at, source, name in self.ancestors],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OriginPart:
        """The inverse of `to_json`."""
        ancestors = (Ancestor(how, Micros(at), StreamId(int(i, 16)), name) for how, at, i, name in value["ancestors"])
        return cls(
            StreamId(int(value["source"], 16)),
            value["name"],
            value["from"],
            value["to"],
            value["events"],
            value["place"],
            ancestors=tuple(ancestors),
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a stream, or put events of other streams into it: `how` is the verb (copied, appended, stitched,
    imported, …), `at` when, `parts` in the order in which they are read. What writers appended has no origin."""

    how: str
    at: Micros
    parts: tuple[OriginPart, ...]

    def to_json(self) -> dict[str, object]:
        """As the catalog keeps it."""
        return {"how": self.how, "at": self.at, "parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Origin:
        """The inverse of `to_json`."""
        return cls(value["how"], Micros(value["at"]), tuple(OriginPart.from_json(part) for part in value["parts"]))
