"""`anabranch cut` and `anabranch distance`: places in a stream, and how much lies between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, new_app, open_store
from anabranch.cli.output import counted, print_columns, print_json, say, size_text
from anabranch.cli.ranges import ByOption, FromOption, RangeArgument, ToOption, open_store_range, time_kind
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.model.cut import StreamCut
    from anabranch.readers.place import TimeKind
    from anabranch.store import Store

cut_app, distance_app = new_app(), new_app()

EventsOption = Annotated[int | None, typer.Option("--events", metavar="N", help="Go on by so many events.", min=0)]
BytesOption = Annotated[
    str | None, typer.Option("--bytes", metavar="SIZE", help="Go on by so many bytes, as 500MB or 10GiB.")
]


@cut_app.command()
def cut(
    stream: StreamArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="PLACE", help="head, tail, a cut, a pointer, a time, or as -2h before now."),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PLACE", help="Go on from here.", show_default="head")
    ] = None,
    by: ByOption = "append",
    events: EventsOption = None,
    size: BytesOption = None,
    at_most: Annotated[
        bool, typer.Option("--at-most", help="Stop before there is more, instead of when there is enough.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Print the cut at a place of a stream, or behind so many events or bytes.

    A cut can be given wherever a place is asked for. Segments side by side are passed evenly; the same question has the
    same answer.

    Examples:

      anabranch cut iot/sensors --at -1d
      anabranch cut iot/sensors --events 1000
      anabranch cut iot/sensors --after -1d --bytes 1GB
    """
    if (events is None) == (size is None) and (events is not None or at is None):
        raise InvalidArgument("say one of --at, --events and --bytes")
    if at is not None and (after is not None or events is not None or size is not None):
        raise InvalidArgument("--at is a place by itself; say --after to go on from one by --events or --bytes")
    with open_store(store) as opened:
        found = place(opened, stream, at or after or "head", time_kind(by))
        if at is None:
            found = go_on(opened, stream, found, events, size, at_most=at_most)
        told = {
            "cut": str(found),
            "events_before": opened.streams.distance(stream, end=found).events,
            "events_behind": opened.streams.distance(stream, found).events,
        }
    if as_json:
        print_json(told)
    else:
        print(told["cut"])
        say(f"{counted(int(str(told['events_before'])), 'event')} before it, {told['events_behind']:,} behind")


@distance_app.command()
def distance(
    stream: RangeArgument,
    start: FromOption = None,
    end: ToOption = None,
    by: ByOption = "append",
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Tell how many events and bytes lie between two places of a stream, and in which segments.

    Nothing is read to know it, however much it is. Bytes are logical: what the events weighed when they were appended;
    a place inside a block of events that lie together is counted in proportion.

    Examples:

      anabranch distance iot/sensors --from -1d
      anabranch distance iot/sensors --from -2d --to -1d --json
    """
    from anabranch.model.stream_range import StreamRange

    with open_store_range(store, stream, start, end, by) as (opened, part):
        parsed = StreamRange.of(part)
        assert not isinstance(parsed.start, str)
        assert not isinstance(parsed.end, str)
        between = opened.streams.between(str(parsed.stream), parsed.start, parsed.end)
    ranges = [
        {"segment": str(each.segment), "from": each.start, "to": each.stop, "events": each.events, "bytes": each.bytes}
        for each in between.ranges
    ]
    if as_json:
        told = {"events": between.events, "bytes": between.bytes, "from": str(between.start), "to": str(between.end)}
        print_json({**told, "ranges": ranges})
        return
    print(f"{counted(between.events, 'event')}, {size_text(between.bytes)}")
    if ranges:
        rows = [(r["segment"], r["from"], r["to"], r["events"], size_text(int(str(r["bytes"])))) for r in ranges]
        print_columns(("SEGMENT", "FROM", "TO", "EVENTS", "BYTES"), rows, indent="  ")


def place(opened: Store, stream: str, text: str, by: TimeKind = "append") -> StreamCut:
    """The cut at a place. Raises as a reader that begins there."""
    from anabranch.cli.places import parse_place, resolve

    return resolve(opened, stream, parse_place(text, now=opened.runtime.clock.now()), by=by)


def go_on(
    opened: Store, stream: str, start: StreamCut, events: int | None, size: str | None, *, at_most: bool = False
) -> StreamCut:
    """The cut so many events, or bytes, behind another."""
    from anabranch.model.amounts import to_size

    amount = None if size is None else to_size(size)
    return opened.streams.cut_after(stream, start, events=events, bytes=amount, at_most=at_most)
