"""Where the events of a stream came from: its lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.model.ids import Micros, StreamId


class Ancestor(NamedTuple):
    """A stream that a source's own events came from earlier: `how` (copied, appended, stitched, …) and when."""

    how: str
    at: Micros
    source: StreamId
    name: str


@dataclass(frozen=True, slots=True)
class OriginPart:
    """Events taken from one source stream: `events` of them, between the cuts `start` and `end` (as text).

    `source` was called `name` at the time; `name_now` is None once it is deleted. `place` is set if the source is or
    was in another store or an archive. `ancestors`, nearest first, are the streams that the source's own events had
    come from by then.
    """

    source: StreamId
    name: str
    start: str
    end: str
    events: int
    place: str | None = None
    name_now: str | None = None
    ancestors: tuple[Ancestor, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog and given to programs."""
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
    """An operation that created a stream, or put events of other streams into it. `how` is the verb (copied, appended,
    stitched, imported, …), `at` the time, `parts` the sources in reading order. Events appended by writers have no
    origin."""

    how: str
    at: Micros
    parts: tuple[OriginPart, ...]
