"""Places in a stream: finding cuts, comparing them, and how much lies between, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from anabranch.core import cuts
from anabranch.core.advance import advance
from anabranch.errors import InvalidArgument
from anabranch.log.sizes import measure, segment_bytes
from anabranch.model.cut import HEAD, TAIL, Edge, Order, StreamCut, place_of
from anabranch.model.ids import Micros
from anabranch.model.pointer import EventPointer
from anabranch.model.segment_range import Between, Distance
from anabranch.model.stream import StreamView
from anabranch.model.stream_range import StreamRange
from anabranch.model.times import to_micros
from anabranch.streams.arguments import Which, which
from anabranch.streams.change import Changes
from anabranch.streams.find import cuts_of, named, need_view

CutAt = Callable[[StreamView, Micros, bool], StreamCut]
Cut = StreamCut | Edge | str


class CutAlgebra(Changes):
    """What `Streams` tells of places. A cut may be given by its text. Bytes are logical, and counted as `anabranch.log.sizes` says. Every method raises
    StreamNotFound, and for a cut that is given InvalidCut, or Truncated where it lies before the head."""

    _cut_at: CutAt

    def head(self, name: Which) -> StreamCut:
        """The cut before the first event that can be read."""
        return cuts.head_cut(self._seen(name))

    def tail(self, name: Which) -> StreamCut:
        """The cut behind the last event."""
        return cuts.tail_cut(self._seen(name))

    def cut_at(self, name: Which, time: datetime | int | str, *, by: str = "append") -> StreamCut:
        """The cut before the first event at or after `time` in stream order, by append time or by `event` time."""
        if by not in ("append", "event"):
            raise InvalidArgument(f"by is 'append' or 'event', not '{by}'")
        return self._cut_at(self._seen(name), to_micros(time), by == "event")

    def cut_after(
        self,
        name: Which,
        cut: Cut = HEAD,
        *,
        events: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the field's word
        at_most: bool = False,
    ) -> StreamCut:
        """The first cut with at least so many `events`, or so many `bytes`, between it and `cut`; with `at_most` the last
        one with no more. The tail where the stream holds less.

        Events are passed in one order, always the same: what lies ahead in the segments side by side is shared evenly
        among them, then come their successors. So with `events`, exactly so many are passed.
        """
        if (events is None) == (bytes is None):
            raise InvalidArgument("say one of: events=, bytes=")
        amount = events if events is not None else bytes
        if not isinstance(amount, int) or isinstance(amount, bool) or amount < 0:
            raise InvalidArgument(f"a number of events or bytes is an integer from 0 on, not {amount!r}")
        with self._catalog.reading() as txn:
            view = need_view(txn, which(name))
            start = cuts.resolve(view, place_of(cut))
            if events is not None:
                return advance(view, start, events, lambda segment, low, high: high - low, at_most=at_most)
            return advance(view, start, amount, lambda *part: segment_bytes(txn, view, *part), at_most=at_most)

    def between(self, name: Which, start: Cut = HEAD, end: Cut = TAIL) -> Between:
        """The segment ranges between two cuts, with their events and bytes. Raises InvalidCut if `end` lies before
        `start` in a segment."""
        with self._catalog.reading() as txn:
            view = need_view(txn, which(name))
            return measure(txn, view, cuts.resolve(view, place_of(start)), cuts.resolve(view, place_of(end)))

    def distance(self, name: Which, start: Cut = HEAD, end: Cut = TAIL) -> Distance:
        """How many events, and how many bytes, lie between two cuts. Raises as `between`."""
        return self.between(name, start, end).distance

    def compare(self, name: Which, first: Cut, second: Cut) -> Order:
        """How the place `first` lies to `second`: before, after, the same, or neither (`Order.CONCURRENT`)."""
        view = self._seen(name)
        return cuts.compare(view, cuts.resolve(view, place_of(first)), cuts.resolve(view, place_of(second)))

    def contains(self, part: Which | StreamRange, place: EventPointer | Cut) -> bool:
        """True if an event lies in a range of a stream, or a cut neither before its start nor behind its end."""
        parsed = StreamRange.of(part)
        with self._catalog.reading() as txn:
            view = need_view(txn, named(parsed))
        start, end = (cuts.resolve(view, cut) for cut in cuts_of(parsed))
        ranges = cuts.ranges(view, start, end)  # refuses an end before the start
        if isinstance(place, EventPointer):
            return place.stream == view.info.id and any(
                segment == place.segment and low <= place.offset < high for segment, low, high in ranges
            )
        cut = cuts.resolve(view, place_of(place))
        return cuts.before(view, start, cut) and cuts.before(view, cut, end)

    def _seen(self, name: Which) -> StreamView:
        with self._catalog.reading() as txn:
            return need_view(txn, which(name))
