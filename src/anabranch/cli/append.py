"""`anabranch append`: a stream, or a range of one, behind the last event of another."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app
from anabranch.cli.output import counted, print_json, say
from anabranch.cli.ranges import FromOption, RangeArgument, ToOption, open_range

app = new_app()


@app.command()
def append(
    stream: RangeArgument,
    onto: Annotated[str, typer.Argument(metavar="ONTO", help="The stream that gets longer, as scope/name.")],
    start: FromOption = None,
    end: ToOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Append a stream, or a range of it, to another, at once and whatever its size. Writers and readers go on.

    Columns may differ; where their types do, the wider one is taken. Keys and times must be the same columns. Asked twice, it appends twice.

    Examples:

      anabranch append iot/yesterday iot/sensors
      anabranch append iot/raw iot/all --from 2026-01-31T12:00:00Z
    """
    with open_range(store, stream, start, end) as (streams, source):
        joined = streams.append(source, onto)
    events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    if as_json:
        print_json({"name": onto, "appended": events, **joined.to_json()})
    else:
        say(f"{counted(events, 'event')} of '{stream}' are appended to '{onto}'")
