"""`anabranch cut` and `anabranch distance`: places in a stream, and the amount of data between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, print_columns, print_json, print_note, put_line
from anabranch.cli.ranges import BY_OPTION, RangeOptions, time_kind
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import size_text
from anabranch.model.misplaced import MisplacedEventsWarning

if TYPE_CHECKING:
    from anabranch.model.cut import StreamCut
    from anabranch.model.segment_range import SegmentRange
    from anabranch.store import Store


EVENTS_OPTION: Final = option("--events", "N", "Move on by this many events.", min=0)
BYTES_OPTION: Final = option("--bytes", "SIZE", "Move on by this many bytes: 500MB, 10GiB.")


def cut(
    stream: str = STREAM_ARGUMENT,
    at: str | None = option("--at", "PLACE", "head, tail, a cut, a pointer, a time, or -2h (two hours ago)."),
    after: str | None = option("--after", "PLACE", "Count from here.", show_default="head"),
    by: str = BY_OPTION,
    events: int | None = EVENTS_OPTION,
    size: str | None = BYTES_OPTION,
    at_most: bool = flag(
        "--at-most", "Take the last cut with at most this amount, not the first with at least this amount."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Print the cut at a position of a stream, or a number of events or bytes after it.

    A cut can be given wherever a place is expected. Counting advances evenly through parallel segments; the same
    arguments give the same cut. With event times, events that came late or early may lie on the wrong side of the cut;
    their number is reported.

    Examples:

      anabranch cut iot/sensors --at -1d
      anabranch cut iot/sensors --events 1000
      anabranch cut iot/sensors --after -1d --bytes 1GB
    """
    from anabranch.cli.stream_places import parse_place, resolve
    from anabranch.model.times import to_micros

    if (events is None) == (size is None) and (events is not None or at is None):
        raise InvalidArgument("pass exactly one of --at, --events and --bytes")
    if at is not None and (after is not None or events is not None or size is not None):
        raise InvalidArgument("--at names the position itself: omit --after, --events and --bytes")
    kind = time_kind(by)
    with open_store() as opened:
        place = parse_place(at or after or "head", now=opened.runtime.clock.now())
        found = resolve(opened, stream, place, by=kind)
        if at is None:
            found = advance_cut(opened, stream, found, events, size, at_most=at_most)
        before = opened.cuts.distance(stream, end=found).events
        behind = opened.cuts.distance(stream, found).events
        wrong = None
        if at is not None and kind == "event" and isinstance(place, datetime | int):
            wrong = opened.streams.misplaced(stream, to_micros(place), by="event", cut=found)
    if as_json:
        misplaced = {} if wrong is None else {"late_before": wrong.before_cut, "early_behind": wrong.after_cut}
        print_json({"cut": str(found), "events_before": before, "events_behind": behind, **misplaced})
    else:
        put_line(found)
        print_note(f"{counted(before, 'event')} before it, {behind:,} after it")
        if wrong:
            print_note(f"warning: {MisplacedEventsWarning(stream, wrong)}")


def distance(stream: RangeOptions, as_json: bool = JSON_OPTION) -> None:
    """Count the events and bytes between two places of a stream, in total and by segment.

    Reads no events, whatever the distance. Bytes are logical: the size of the events when they were appended; a place
    inside a block of events is counted in proportion.

    Examples:

      anabranch distance iot/sensors --from -1d
      anabranch distance iot/sensors --from -2d --to -1d --json
    """
    from anabranch.model.stream_range import StreamRange

    with stream.open() as (opened, part):
        parsed = StreamRange.of(part)
        assert not isinstance(parsed.start, str)
        assert not isinstance(parsed.end, str)
        between = opened.cuts.between(str(parsed.stream), parsed.start, parsed.end)
    if as_json:
        result = {"events": between.events, "bytes": between.bytes, "from": str(between.start), "to": str(between.end)}
        print_json({**result, "ranges": [range_json(each) for each in between.ranges]})
        return
    put_line(f"{counted(between.events, 'event')}, {size_text(between.bytes)}")
    print_ranges(between.ranges)


def range_json(part: SegmentRange) -> dict[str, Any]:
    """A range of a segment as JSON."""
    return {
        "segment": str(part.segment),
        "from": part.start,
        "to": part.stop,
        "events": part.events,
        "bytes": part.bytes,
    }


def print_ranges(parts: Sequence[SegmentRange]) -> None:
    """Prints ranges of segments as columns, if there are any."""
    if parts:
        rows = [(str(each.segment), each.start, each.stop, each.events, size_text(each.bytes)) for each in parts]
        print_columns(("SEGMENT", "FROM", "TO", "EVENTS", "BYTES"), rows, indent="  ")


def advance_cut(
    opened: Store, stream: str, start: StreamCut, events: int | None, size: str | None, *, at_most: bool = False
) -> StreamCut:
    """Returns the cut that is this many events, or bytes, after another."""
    from anabranch.model.amounts import to_size

    amount = None if size is None else to_size(size)
    return opened.cuts.after(stream, start, events=events, bytes=amount, at_most=at_most)
