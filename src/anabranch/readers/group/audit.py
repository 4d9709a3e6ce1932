"""An account of what a reader was given: how old events were, which came twice and which are missing, by who wrote them.

It is kept by the application, for the store knows no writers once events are stored: a function says who wrote an event, and
as which of its key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anabranch import limits
from anabranch.model.event import Event
from anabranch.runtime.clock import Clock

Source = Callable[[Event], tuple[str, int] | None]

_BUCKETS = 64  # of powers of two, in µs


@dataclass(slots=True)
class WriterAudit:
    """The account of one writer. `duplicates` came a second time, `missing` were passed over; both are counted along
    each key, from the first event that this reader was given of it. Latencies run from an event's append to when it was
    handed out, in µs."""

    events: int = 0
    duplicates: int = 0
    missing: int = 0
    latency_us_max: int = 0
    _latencies: list[int] = field(default_factory=lambda: [0] * _BUCKETS)

    def latency_us(self, part: float) -> int:
        """At most this many µs old were `part` of the events (0.99: all but a hundredth), up to a factor of two."""
        wanted, seen = part * self.events, 0
        for bucket, count in enumerate(self._latencies):
            seen += count
            if count and seen >= wanted:
                return min((1 << bucket) - 1, self.latency_us_max)
        return self.latency_us_max

    def note_latency(self, micros: int) -> None:
        """One more event."""
        self.events += 1
        self.latency_us_max = max(self.latency_us_max, micros)
        self._latencies[min(max(micros, 0).bit_length(), _BUCKETS - 1)] += 1


class ReaderAudit:
    """See `ReaderGroup.audit`. For one reader, and its thread. Remembers the last `limits.AUDIT_KEYS_MAX` keys of writers."""

    def __init__(self, clock: Clock, source: Source) -> None:
        self._clock = clock
        self._source = source
        self._writers: dict[str, WriterAudit] = {}
        self._next: OrderedDict[tuple[str, Any], int] = OrderedDict()

    @property
    def writers(self) -> dict[str, WriterAudit]:
        """The account so far, by writer."""
        return dict(self._writers)

    def over(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, each noted when it is handed out."""
        for event in events:
            self.note(event)
            yield event

    def note(self, event: Event) -> None:
        """Take an event into the account. One of which `source` says None is left out."""
        told = self._source(event)
        if told is None:
            return
        writer, number = told
        account = self._writers.setdefault(writer, WriterAudit())
        account.note_latency(self._clock.now() - (event.appended_us or 0))
        place = (writer, event.key)
        expected = self._next.get(place, number)
        if number < expected:
            account.duplicates += 1
            return
        account.missing += number - expected
        self._next[place] = number + 1
        self._next.move_to_end(place)
        if len(self._next) > limits.AUDIT_KEYS_MAX:
            self._next.popitem(last=False)
