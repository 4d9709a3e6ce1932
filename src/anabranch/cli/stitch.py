"""`anabranch stitch`: a new stream of several, one after the other."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_names
from anabranch.cli.output import confirm, counted, print_json, say

app = new_app()


@app.command()
def stitch(
    sources: Annotated[list[str], typer.Argument(metavar="STREAM...", help="The streams, in their order.")],
    into: Annotated[str, typer.Option("--into", metavar="STREAM", help="The new stream, as scope/name.")],
    drop_sources: Annotated[
        bool, typer.Option("--drop-sources", help="Delete the sources with it; the new stream may take one's name.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Stitch streams together, at once and whatever their size: all of the first, then all of the second, and so on.

    Columns may differ, but not in type; keys and times must be the same columns.

    Examples:

      anabranch stitch iot/january iot/february iot/march --into iot/quarter
      anabranch stitch iot/old iot/new --into iot/new --drop-sources
    """
    with open_names(store) as names:
        if drop_sources:
            confirm(f"Delete {', '.join(map(repr, dict.fromkeys(sources)))} behind the stitch?", yes=yes)
        joined = names.streams.stitch(sources, into=into, keep_sources=not drop_sources)
    events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    if as_json:
        print_json({"name": into, "events": events, **joined.to_json()})
    else:
        say(f"'{into}' is there, with {counted(events, 'event')}")
