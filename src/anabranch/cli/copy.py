"""`anabranch copy`: a stream, or a range of one, as a new stream over the same bytes."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app
from anabranch.cli.output import counted, print_json, say
from anabranch.cli.ranges import FromOption, RangeArgument, ToOption, open_range

app = new_app()


@app.command()
def copy(
    stream: RangeArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The new stream, as scope/name.")],
    start: FromOption = None,
    end: ToOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Copy a stream, or a range of it, at once and whatever its size: the copy shares its bytes.

    It has the same columns, tags, segments and offsets, and can be written to; later writes to either never show in
    the other. Asked again with the same arguments, nothing changes.

    Examples:

      anabranch copy iot/sensors iot/today --from -1d
      anabranch copy iot/sensors backup/sensors
      anabranch copy 'iot/sensors[-2h,-1h]' iot/an-hour
    """
    with open_range(store, stream, start, end) as (streams, source):
        copied = streams.copy(source, target)
        view = streams.view(target)
    events = sum(view.length(segment.id) - segment.head for segment in view.ordered)
    if as_json:
        print_json({"name": target, "events": events, **copied.to_json()})
    else:
        say(f"'{target}' is a copy of '{stream}', with {counted(events, 'event')}")
