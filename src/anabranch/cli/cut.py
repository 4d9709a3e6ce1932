"""`anabranch cut` and `anabranch distance`: places in a stream, and the amount of data between them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from anabranch.cli.declare import flag, option
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import counted, print_columns, print_json, print_note, put_line
from anabranch.cli.ranges import BY_OPTION, RangeOptions, time_kind
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import size_text
from anabranch.model.misplaced import MisplacedEventsWarning

if TYPE_CHECKING:
    from anabranch.model.cut import StreamCut
    from anabranch.model.ids import Micros
    from anabranch.model.time_kind import TimeKind
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
    if (events is None) == (size is None) and (events is not None or at is None):
        raise InvalidArgument("pass exactly one of --at, --events and --bytes")
    if at is not None and (after is not None or events is not None or size is not None):
        raise InvalidArgument("--at names the position itself: omit --after, --events and --bytes")
    with open_store() as opened:
        found = place(opened, stream, at or after or "head", time_kind(by))
        if at is None:
            found = advance_cut(opened, stream, found, events, size, at_most=at_most)
        result = {
            "cut": str(found),
            "events_before": opened.cuts.distance(stream, end=found).events,
            "events_behind": opened.cuts.distance(stream, found).events,
        }
        wrong = None
        time = time_of(opened, at, by)
        if time is not None:
            wrong = opened.streams.misplaced(stream, time, by="event", cut=found)
            result |= {"late_before": wrong.before_cut, "early_behind": wrong.after_cut}
    if as_json:
        print_json(result)
    else:
        put_line(result["cut"])
        print_note(
            f"{counted(int(str(result['events_before'])), 'event')} before it, {result['events_behind']:,} after it"
        )
        if wrong:
            print_note(f"warning: {MisplacedEventsWarning(stream, wrong)}")


def distance(
    stream: RangeOptions,
    as_json: bool = JSON_OPTION,
) -> None:
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
    ranges = [
        {"segment": str(each.segment), "from": each.start, "to": each.stop, "events": each.events, "bytes": each.bytes}
        for each in between.ranges
    ]
    if as_json:
        result = {"events": between.events, "bytes": between.bytes, "from": str(between.start), "to": str(between.end)}
        print_json({**result, "ranges": ranges})
        return
    put_line(f"{counted(between.events, 'event')}, {size_text(between.bytes)}")
    if ranges:
        rows = [(r["segment"], r["from"], r["to"], r["events"], size_text(int(str(r["bytes"])))) for r in ranges]
        print_columns(("SEGMENT", "FROM", "TO", "EVENTS", "BYTES"), rows, indent="  ")


def place(opened: Store, stream: str, text: str, by: TimeKind = "append") -> StreamCut:
    """Returns the cut at a place. Raises the same errors as a reader that starts there."""
    from anabranch.cli.stream_places import parse_place, resolve

    return resolve(opened, stream, parse_place(text, now=opened.runtime.clock.now()), by=by)


def time_of(opened: Store, at: str | None, by: str) -> Micros | None:
    """Returns the event time that `--at` names; None if it names another kind of place."""
    from anabranch.cli.stream_places import parse_place
    from anabranch.model.times import to_micros

    if at is None or time_kind(by) != "event":
        return None
    found = parse_place(at, now=opened.runtime.clock.now())
    return to_micros(found) if isinstance(found, datetime | int) else None


def advance_cut(
    opened: Store, stream: str, start: StreamCut, events: int | None, size: str | None, *, at_most: bool = False
) -> StreamCut:
    """Returns the cut that is this many events, or bytes, after another."""
    from anabranch.model.amounts import to_size

    amount = None if size is None else to_size(size)
    return opened.cuts.after(stream, start, events=events, bytes=amount, at_most=at_most)
