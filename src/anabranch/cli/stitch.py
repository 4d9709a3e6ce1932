"""`anabranch stitch`: a new stream of several, one after the other."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app
from anabranch.cli.output import confirm, counted, print_json, say
from anabranch.cli.ranges import open_ranges

app = new_app()


@app.command()
def stitch(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="STREAM...", help="The streams in their order, or ranges of them: scope/name[start,end]."
        ),
    ],
    into: Annotated[str, typer.Option("--into", metavar="STREAM", help="The new stream, as scope/name.")],
    drop_sources: Annotated[
        bool, typer.Option("--drop-sources", help="Delete the sources with it; the new stream may take one's name.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Stitch streams together, at once and whatever their size: all of the first, then all of the second, and so on.

    Columns may differ; where their types do, the wider one is taken. Keys and times must be the same columns. Places in a
    range are head, tail, a cut, a pointer, a time, or as -2h before now; one left out is the end on its side.

    Examples:

      anabranch stitch 'iot/sensors[,2026-01-31T12:00:00Z]' 'iot/repaired[-2h,]' --into iot/right
      anabranch stitch iot/january iot/february iot/march --into iot/quarter
      anabranch stitch iot/old iot/new --into iot/new --drop-sources
    """
    with open_ranges(store, sources) as (streams, parts):
        if drop_sources:
            named = ", ".join(f"'{name}'" for name in dict.fromkeys(part.stream for part in parts))
            confirm(f"Delete {named} behind the stitch?", yes=yes)
        joined = streams.stitch(parts, into=into, keep_sources=not drop_sources)
    events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    if as_json:
        print_json({"name": into, "events": events, **joined.to_json()})
    else:
        say(f"'{into}' is there, with {counted(events, 'event')}")
