"""Streams as the catalog describes them: their segments, and the spans through which segments view logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.model.append import BlobLocation, LogState, TimeBounds
from anabranch.model.ids import BlobId, LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.relocation import Relocation
from anabranch.model.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class Scope:
    """A namespace of streams."""

    name: str
    tags: Mapping[str, str]
    created_at: Micros


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream without its segments. `version` increases with every change of its segments, head, schema or state;
    `schema_version` numbers its schemas from 1."""

    id: StreamId
    name: StreamName
    schema: StreamSchema
    schema_version: int
    tags: Mapping[str, str]
    created_at: Micros
    sealed: bool
    version: int
    epoch: int
    next_number: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One key range during the epochs `created <= epoch < retired`; `retired` None means it is still current.

    A segment is sealed when it is retired or its stream is sealed. `head` is its first readable offset.
    """

    id: SegmentId
    range: KeyRange
    retired: int | None
    head: int

    @property
    def created(self) -> int:
        """The epoch that created the segment."""
        return self.id.epoch


@dataclass(frozen=True, slots=True)
class Span:
    """The events of a segment from `offset` on are in `log` at `start <= position < stop`; `stop` None follows the
    log."""

    segment: SegmentId
    offset: int
    log: LogId
    start: int
    stop: int | None


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of consecutive events of a log, `start <= position < stop`, stored together in one blob, or inline.

    `size_end` is the log's running logical bytes at `stop`. `schema` is the version of the stream's schema that encoded
    the events. `encoding` is 'arrow' or 'parquet', or 'gone' if no segment viewed the events any more and their bytes
    were collected. The events of a tier-1 extent share one append time.
    """

    log: LogId
    start: int
    stop: int
    blob: BlobId | None
    key: str | None
    encoding: str
    location: BlobLocation
    schema: int
    checksum: int
    appended: TimeBounds
    events: TimeBounds
    size_end: int
    data: bytes | None = None

    def part(self, start: int, stop: int) -> Extent:
        """The extent's events at `start <= position < stop`. Time bounds and running size stay those of the whole
        extent."""
        place = replace(self.location, row=self.location.row + start - self.start)
        return replace(self, start=start, stop=stop, location=place)


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream at one moment: its segments, spans (in offset order) and the states of the logs they end in.
    `relocations` lists how replacements changed the positions in the stream, oldest first, if the view was loaded for
    reading."""

    info: StreamInfo
    segments: Mapping[SegmentId, Segment]
    spans: Mapping[SegmentId, tuple[Span, ...]]
    logs: Mapping[LogId, LogState]
    relocations: tuple[Relocation, ...] = ()
    _order: tuple[Segment, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_order", tuple(self.segments[i] for i in sorted(self.segments)))

    @property
    def ordered(self) -> tuple[Segment, ...]:
        """All segments in id order."""
        return self._order

    @property
    def current(self) -> tuple[Segment, ...]:
        """The segments of the newest epoch, by key range. They cover the key space exactly once."""
        return tuple(sorted((s for s in self._order if s.retired is None), key=lambda s: s.range.low))

    @property
    def events(self) -> int:
        """The number of events, from the head to the tail."""
        return sum(self.length(segment.id) - segment.head for segment in self._order)

    def at_epoch(self, epoch: int) -> tuple[Segment, ...]:
        """The segments of one epoch, by key range."""
        alive = (s for s in self._order if s.created <= epoch and (s.retired is None or s.retired > epoch))
        return tuple(sorted(alive, key=lambda s: s.range.low))

    def open_log(self, segment: SegmentId) -> LogId | None:
        """The log that takes the segment's appends, or None if the segment is sealed."""
        spans = self.spans.get(segment, ())
        return spans[-1].log if spans and spans[-1].stop is None else None

    def length(self, segment: SegmentId) -> int:
        """The offset after the segment's last event."""
        spans = self.spans.get(segment, ())
        if not spans:
            return self.segments[segment].head
        last = spans[-1]
        stop = self.logs[last.log].length if last.stop is None else last.stop
        return last.offset + stop - last.start

    def sealed(self, segment: SegmentId) -> bool:
        """True if no more events can be appended to this segment."""
        return self.segments[segment].retired is not None or self.info.sealed

    def successors(self, segment: SegmentId) -> tuple[Segment, ...]:
        """The segments that took over this one's key range when it was retired, by key range."""
        own = self.segments[segment]
        if own.retired is None:
            return ()
        later = (s for s in self._order if s.created == own.retired and s.range.overlaps(own.range))
        return tuple(sorted(later, key=lambda s: s.range.low))

    def predecessors(self, segment: SegmentId) -> tuple[Segment, ...]:
        """The segments this one took over from, by key range."""
        own = self.segments[segment]
        before = (s for s in self._order if s.retired == own.created and s.range.overlaps(own.range))
        return tuple(sorted(before, key=lambda s: s.range.low))
