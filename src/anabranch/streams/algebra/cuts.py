"""Finding and comparing cuts of a stream, and counting the events between them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from anabranch.core import cuts
from anabranch.core.advance import advance
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.log.sizes import measure, segment_bytes
from anabranch.model.cut import HEAD, TAIL, Edge, Order, StreamCut, parse_cut
from anabranch.model.ids import Micros
from anabranch.model.misplaced import Misplaced, MisplacedEventsWarning
from anabranch.model.pointer import EventPointer
from anabranch.model.segment_range import Distance, RangesBetween
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind
from anabranch.model.times import to_micros
from anabranch.model.warn import warn_caller
from anabranch.streams.arguments import StreamKey, stream_key
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_view, range_cuts, range_stream

CutAt = Callable[[StreamView, Micros, bool], StreamCut]
CountMisplaced = Callable[[StreamView, Micros, StreamCut | None, bool], Misplaced]
Cut = StreamCut | Edge | str


class Cuts(Displayed):
    """Finds and compares cuts of streams, and counts the events between them. A cut may be given by its text. Bytes are
    logical, counted as described in `anabranch.log.sizes`. Every method raises StreamNotFound, and for a given cut
    InvalidCut, or Truncated where it lies before the head."""

    def __init__(self, changes: Changes, cut_at: CutAt, count_misplaced: CountMisplaced) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime
        self._cut_at = cut_at
        self._count_misplaced = count_misplaced

    def head(self, name: StreamKey) -> StreamCut:
        """The cut before the first event that can be read."""
        return cuts.head_cut(self._view(name))

    def tail(self, name: StreamKey) -> StreamCut:
        """The cut after the last event."""
        return cuts.tail_cut(self._view(name))

    def at(
        self, name: StreamKey, time: datetime | int | str, *, by: str = "append", count_misplaced: bool = True
    ) -> StreamCut:
        """The cut before the first event at or after `time` in stream order, by append time or by `event` time.

        By event time, events after the cut may be earlier than `time`. They are counted, and if there are any,
        MisplacedEventsWarning is issued. The count lists the extents after the cut in the catalog, and reads only the
        times of those that may hold such events, none where events are in order; `count_misplaced=False` leaves it out.
        """
        time_kind(by)
        view, micros = self._view(name), to_micros(time, self._runtime.settings.times)
        if by != "event" or not count_misplaced:
            return self._cut_at(view, micros, by == "event")
        found = self._count_misplaced(view, micros, None, True)
        if found.after_cut:
            warn_caller(MisplacedEventsWarning(str(view.info.name), found))
        return found.cut

    def after(
        self,
        name: StreamKey,
        cut: Cut = HEAD,
        *,
        events: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the field's word
        at_most: bool = False,
    ) -> StreamCut:
        """The first cut that lies at least `events`, or `bytes`, after `cut`; with `at_most`, the last cut that lies at
        most so many after it. The tail where fewer follow `cut`.

        Events are counted in one fixed order: first the events ahead in segments that are read side by side, shared
        evenly among these, then those of their successors. So with `events`, exactly that number lies between the cuts.
        """
        if (events is None) == (bytes is None):
            raise InvalidArgument("expected exactly one of events= and bytes=")
        amount = events if events is not None else bytes
        if not isinstance(amount, int) or isinstance(amount, bool) or amount < 0:
            raise InvalidArgument(f"expected a non-negative integer of events or bytes, got {amount!r}")
        with self._catalog.reading() as txn:
            view = need_view(txn, stream_key(name))
            start = cuts.resolve(view, parse_cut(cut))
            if events is not None:
                return advance(view, start, events, lambda segment, low, high: high - low, at_most=at_most)
            return advance(view, start, amount, lambda *part: segment_bytes(txn, view, *part), at_most=at_most)

    def between(self, name: StreamKey, start: Cut = HEAD, end: Cut = TAIL) -> RangesBetween:
        """The segment ranges between two cuts, with their events and bytes. Raises InvalidCut if `end` lies before
        `start` in a segment."""
        with self._catalog.reading() as txn:
            view = need_view(txn, stream_key(name))
            return measure(txn, view, cuts.resolve(view, parse_cut(start)), cuts.resolve(view, parse_cut(end)))

    def distance(self, name: StreamKey, start: Cut = HEAD, end: Cut = TAIL) -> Distance:
        """The number of events and of bytes between two cuts. Raises what `between` raises."""
        return self.between(name, start, end).distance

    def compare(self, name: StreamKey, first: Cut, second: Cut) -> Order:
        """How `first` lies relative to `second`: before, after, the same, or neither (`Order.CONCURRENT`)."""
        view = self._view(name)
        return cuts.compare(view, cuts.resolve(view, parse_cut(first)), cuts.resolve(view, parse_cut(second)))

    def contains(self, part: StreamKey | StreamRange, place: EventPointer | Cut) -> bool:
        """True if an event is in a range of a stream, or a cut lies neither before its start nor after its end."""
        parsed = StreamRange.of(part)
        with self._catalog.reading() as txn:
            view = need_view(txn, range_stream(parsed))
        start, end = (cuts.resolve(view, cut) for cut in range_cuts(parsed))
        ranges = cuts.ranges(view, start, end)  # refuses an end before the start
        if isinstance(place, EventPointer):
            return place.stream == view.info.id and any(
                segment == place.segment and low <= place.offset < high for segment, low, high in ranges
            )
        cut = cuts.resolve(view, parse_cut(place))
        return cuts.is_before(view, start, cut) and cuts.is_before(view, cut, end)

    def _view(self, name: StreamKey) -> StreamView:
        with self._catalog.reading() as txn:
            return need_view(txn, stream_key(name))
