"""`anabranch compare` and `anabranch contains`: the order of places in a stream."""

from __future__ import annotations

import typer

from anabranch.cli.declare import argument
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import print_json, put_line
from anabranch.cli.ranges import BY_OPTION, RangeOptions, time_kind

_PLACE = "head, tail, a cut, an event's pointer, a time, or -2h (two hours ago)."


def compare(
    stream: str = STREAM_ARGUMENT,
    first: str = argument("PLACE", f"A place: {_PLACE}"),
    second: str = argument("PLACE", "Another one."),
    by: str = BY_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare two places of a stream: the first is before, after, same as, or concurrent with the second.

    They are concurrent if each has events before it that the other does not have.

    Examples:

      anabranch compare iot/sensors -2h "$cut"
      anabranch compare iot/sensors "$one" "$two" --json
    """
    from anabranch.cli.stream_places import parse_place, resolve

    with open_store() as opened:
        now = opened.runtime.clock.now()
        cuts = [resolve(opened, stream, parse_place(text, now=now), by=time_kind(by)) for text in (first, second)]
        order = opened.cuts.compare(stream, *cuts).value
    if as_json:
        print_json({"order": order, "first": str(cuts[0]), "second": str(cuts[1])})
    else:
        put_line(order)


def contains(
    stream: RangeOptions,
    place: str = argument("PLACE", f"An event's pointer, or a place: {_PLACE}"),
    as_json: bool = JSON_OPTION,
) -> None:
    """Check whether an event, or a place, is in a range of a stream.

    Exit code 0 if it is, 1 if it is not.

    Examples:

      anabranch contains iot/sensors "$pointer" --from -1d
      anabranch contains 'iot/sensors[-2h,-1h]' "$cut" && echo in that hour
    """
    from anabranch.cli.stream_places import parse_place, resolve
    from anabranch.model.pointer import EventPointer

    with stream.open() as (opened, part):
        found = parse_place(place, now=opened.runtime.clock.now())
        if not isinstance(found, EventPointer):
            found = resolve(opened, str(part.stream), found, by=time_kind(stream.by))
        inside = opened.cuts.contains(part, found)
    if as_json:
        print_json({"contains": inside})
    else:
        put_line("yes" if inside else "no")
    raise typer.Exit(0 if inside else 1)
