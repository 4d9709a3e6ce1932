"""The processes that logged something about a stream under torture."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.ledger import Event
from torture.child import Child


@dataclass
class StreamLogs:
    """The writers and followers of one stream; `followers` in the order in which each continued after the last."""

    stream: str
    writers: list[Child] = field(default_factory=list)
    followers: list[Child] = field(default_factory=list)


def event_of(text: str) -> Event:
    """Returns the event that a line names."""
    writer, key, number = text.split("|")
    return Event(writer, key, int(number))
