"""Statistics of what a reader received: the age of events, duplicates and missing events, by writer.

Stored events do not name their writer, so the application passes a function that returns an event's writer and its
sequence number within its key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anabranch import limits
from anabranch.model.event import Event
from anabranch.runtime.clock import Clock

Source = Callable[[Event], tuple[str, int] | None]

_BUCKETS = 64  # one for each power of two, in µs


@dataclass(slots=True)
class WriterAudit:
    """Statistics for one writer. `duplicates` counts events received again, `missing` counts events skipped; both are
    counted along each key, from the first event of the key that this reader received. Latencies run from an event's
    append to when it was handed out, in µs."""

    events: int = 0
    duplicates: int = 0
    missing: int = 0
    latency_us_max: int = 0
    _latencies: list[int] = field(default_factory=lambda: [0] * _BUCKETS)

    def latency_us(self, part: float) -> int:
        """The latency quantile `part` (0.99: the 99th percentile), in µs: an upper bound that is at most twice the
        exact value."""
        wanted, counted = part * self.events, 0
        for bucket, count in enumerate(self._latencies):
            counted += count
            if count and counted >= wanted:
                return min((1 << bucket) - 1, self.latency_us_max)
        return self.latency_us_max

    def record_latency(self, micros: int) -> None:
        """Count one more event and its latency."""
        self.events += 1
        self.latency_us_max = max(self.latency_us_max, micros)
        self._latencies[min(max(micros, 0).bit_length(), _BUCKETS - 1)] += 1


class ReaderAudit:
    """See `ReaderGroup.audit`. For one reader, in its thread. Remembers the last `limits.AUDIT_KEYS_MAX` keys of
    writers."""

    def __init__(self, clock: Clock, source: Source) -> None:
        self._clock = clock
        self._source = source
        self._writers: dict[str, WriterAudit] = {}
        self._next_numbers: OrderedDict[tuple[str, Any], int] = OrderedDict()

    @property
    def writers(self) -> dict[str, WriterAudit]:
        """The statistics so far, by writer."""
        return dict(self._writers)

    def over(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events, each counted when it is handed out."""
        for event in events:
            self.record(event)
            yield event

    def record(self, event: Event) -> None:
        """Count an event. An event for which `source` returns None is left out."""
        identity = self._source(event)
        if identity is None:
            return
        writer, number = identity
        statistics = self._writers.setdefault(writer, WriterAudit())
        statistics.record_latency(self._clock.now() - (event.appended_us or 0))
        key = (writer, event.key)
        expected = self._next_numbers.get(key, number)
        if number < expected:
            statistics.duplicates += 1
            return
        statistics.missing += number - expected
        self._next_numbers[key] = number + 1
        self._next_numbers.move_to_end(key)
        if len(self._next_numbers) > limits.AUDIT_KEYS_MAX:
            self._next_numbers.popitem(last=False)
