"""Events on the wrong side of a cut at a time: their number, and the warning about them."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.cut import StreamCut


@dataclass(frozen=True, slots=True)
class Misplaced:
    """How many events are on the wrong side of `cut`: `before_cut` counts the events before the cut whose time is at or
    after the given time, `after_cut` the events after the cut with an earlier time. If both are 0, the cut is exactly a
    filter by that time."""

    cut: StreamCut
    before_cut: int
    after_cut: int

    def __bool__(self) -> bool:
        """True if any event is on the wrong side."""
        return self.before_cut > 0 or self.after_cut > 0


class MisplacedEventsWarning(UserWarning):
    """A cut at an event time does not split the stream `stream` as a filter by that time would: `misplaced` counts the
    events on the wrong side."""

    def __init__(self, stream: str, misplaced: Misplaced) -> None:
        super().__init__(stream, misplaced)
        self.stream = stream
        self.misplaced = misplaced

    def __str__(self) -> str:
        """The counts, and what to do."""
        found = []
        if self.misplaced.after_cut:
            found.append(f"{_events(self.misplaced.after_cut)} after the cut with an earlier time")
        if self.misplaced.before_cut:
            found.append(f"{_events(self.misplaced.before_cut)} before the cut with that time or a later one")
        return (
            f"'{self.stream}' is not in order of event time: it has {' and '.join(found)}. A cut is a place, not a "
            "filter; to replace exactly the events of a time range, use store.streams.replace() (anabranch replace)"
        )


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
