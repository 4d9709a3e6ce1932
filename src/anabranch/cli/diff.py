"""`anabranch diff` and `anabranch lineage`: how streams are related."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.cli.cut import print_ranges, range_json
from anabranch.cli.declare import argument
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_catalog
from anabranch.cli.output import counted, iso_time, print_json, print_note, put_line
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from anabranch.model.origin import Origin, OriginPart
    from anabranch.model.segment_range import Distance
    from anabranch.streams.lineage.api import Diff


def diff(
    stream: str = STREAM_ARGUMENT,
    other: str = argument("OTHER", "The stream to compare it with."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show which events two streams share, and which are only in one of them.

    Events are identified by where their bytes are stored: a copy shares those of its source until either is appended
    to. Equal events that were written twice count as two. No event is read.

    Examples:

      anabranch diff iot/sensors iot/yesterday
      anabranch diff iot/sensors iot/yesterday --json
    """
    with open_catalog() as names:
        found = names.lineage.diff(stream, other)
    if as_json:
        print_json(_diff_to_json(found))
        return
    put_line(f"{_amount(found.shared_distance)} in both")
    for name, only, part in (
        (stream, found.only_first, found.only_first_distance),
        (other, found.only_second, found.only_second_distance),
    ):
        put_line(f"{_amount(part)} only in {name}")
        print_ranges(only)
    print_note(f"alike from their heads up to {found.alike[0]} and {found.alike[1]}")


def lineage(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show where the events of a stream came from: copies, stitches, streams that were appended, imports.

    This also works after the sources were renamed or deleted. Events written to the stream itself are not listed.

    Examples:

      anabranch lineage iot/all
      anabranch lineage iot/all --json
    """
    with open_catalog() as names:
        origins = names.lineage.origins(stream)
    if as_json:
        print_json([_origin(each) for each in origins])
        return
    for origin in origins:
        put_line(f"{iso_time(origin.at)}  {origin.how}")
        for part in origin.parts:
            put_line(f"  {counted(part.events, 'event')} of {_source(part)}")
            put_line(f"    from {part.start} to {part.end}")
            for before in part.ancestors:
                put_line(
                    f"    which was {before.how} from {before.name} ({before.source:016x}) at {iso_time(before.at)}"
                )
    if not origins:
        print_note(f"'{stream}' holds nothing but what was written to it")


def _source(part: OriginPart) -> str:
    now = "" if part.name_now == part.name else ", gone now" if part.name_now is None else f", {part.name_now} now"
    return f"{part.name} ({part.source:016x}{now})" + (f" in {part.place}" if part.place else "")


def _origin(origin: Origin) -> dict[str, Any]:
    parts = [
        {
            **part.to_json(),
            "name_now": part.name_now,
            "ancestors": [
                {"how": each.how, "at": iso_time(each.at), "source": f"{each.source:016x}", "name": each.name}
                for each in part.ancestors
            ],
        }
        for part in origin.parts
    ]
    return {"how": origin.how, "at": iso_time(origin.at), "parts": parts}


def _amount(part: Distance) -> str:
    return f"{counted(part.events, 'event')}, {size_text(part.bytes)}"


def _diff_to_json(found: Diff) -> dict[str, Any]:
    return {
        "alike": [str(cut) for cut in found.alike],
        "shared": {
            **found.shared_distance._asdict(),
            "ranges": [
                {**range_json(part), "other_segment": str(other), "other_from": start}
                for part, other, start in found.shared
            ],
        },
        "only_first": {
            **found.only_first_distance._asdict(),
            "ranges": [range_json(part) for part in found.only_first],
        },
        "only_second": {
            **found.only_second_distance._asdict(),
            "ranges": [range_json(part) for part in found.only_second],
        },
    }
