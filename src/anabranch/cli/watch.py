"""`anabranch watch`: what happens to a stream, live."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store
from anabranch.cli.output import counted, iso_time

if TYPE_CHECKING:
    from anabranch.core.notifications import Notification

app = new_app()

_TOLD_ELSEWHERE = ("name", "segments", "group", "readers", "names")


@app.command()
def watch(
    stream: Annotated[
        str | None, typer.Argument(metavar="[STREAM]", help="The stream, as scope/name; default: the whole store.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="tail, head for all that is kept, a time, or -2h before now.")
    ] = "tail",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more, until Ctrl-C.")] = True,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="End after so many notifications.")
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show what happens to a stream as it happens: scaling, truncation, sealing, renaming, and all else but its events.

    It begins with the present state. Without a stream, it shows what happens to all streams and reader groups.

    Examples:

      anabranch watch iot/sensors
      anabranch watch --from -2h --no-follow
      anabranch watch iot/sensors --json | jq -r 'select(.kind == "scaled") | .segments'
    """
    from anabranch.cli.places import parse_place

    with open_store(store) as opened:
        place = parse_place(start, now=opened.runtime.clock.now())
        with opened.notifications(stream, start=place, follow=follow) as told:
            for number, each in enumerate(told, 1):
                print(_json(each) if as_json else _line(each), flush=True)
                if number == limit:
                    return


def _json(each: Notification) -> str:
    told = {
        "id": each.id,
        "at": iso_time(each.at),
        "kind": each.kind,
        "stream": each.stream,
        "group": each.group,
        "segments": each.segments,
        "readers": each.readers,
        "detail": dict(each.detail),
    }
    return json.dumps(told, ensure_ascii=False)


def _line(each: Notification) -> str:
    counts = []
    if each.segments is not None:
        counts.append(counted(each.segments, "segment"))
    if each.readers is not None:
        counts.append(counted(each.readers, "reader"))
    words = [iso_time(each.at), each.kind.ljust(11), each.group or each.stream or "-", ", ".join(counts)]
    return "  ".join(word for word in [*words, _text(each.detail)] if word)


def _text(detail: Mapping[str, Any]) -> str:
    told = {
        name: value for name, value in detail.items() if name not in _TOLD_ELSEWHERE and value not in ([], {}, None)
    }
    return " ".join(f"{name}={_value(value)}" for name, value in told.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
