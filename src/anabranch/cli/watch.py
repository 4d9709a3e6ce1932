"""`anabranch watch`: the changes of a stream as they happen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, open_store
from anabranch.cli.output import counted, iso_time, put_json, put_line

if TYPE_CHECKING:
    from anabranch.notifications.kinds import Notification


_SHOWN_SEPARATELY = ("name", "segments", "group", "readers", "names")


def watch(
    stream: str | None = argument("[STREAM]", "The stream, as scope/name; default: the whole store.", default=None),
    start: str = option(
        "--from", "PLACE", "tail, head for all that is kept, a time, or -2h before now.", default="tail"
    ),
    follow: bool = flag("--follow/--no-follow", "Wait for more, until Ctrl-C.", default=True),
    limit: int | None = option("--limit -n", "N", "End after this many notifications.", min=1),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show the changes of a stream as they happen: scaling, truncation, sealing, renaming, and everything else except
    its events.

    It begins with the present state. Without a stream, it shows the changes of all streams and reader groups.

    Examples:

      anabranch watch iot/sensors
      anabranch watch --from -2h --no-follow
      anabranch watch iot/sensors --json | jq -r 'select(.kind == "scaled") | .segments'
    """
    from anabranch.cli.stream_places import parse_place

    with open_store() as opened:
        place = parse_place(start, now=opened.runtime.clock.now())
        with opened.notifications.read(stream, start=place, follow=follow) as fields:
            for number, each in enumerate(fields, 1):
                (put_json(_json(each), flush=True) if as_json else put_line(_line(each), flush=True))
                if number == limit:
                    return


def _json(each: Notification) -> str:
    fields = {
        "id": each.id,
        "at": iso_time(each.at),
        "kind": each.kind,
        "stream": each.stream,
        "group": each.group,
        "segments": each.segments,
        "readers": each.readers,
        "detail": dict(each.detail),
    }
    return json.dumps(fields, ensure_ascii=False)


def _line(each: Notification) -> str:
    counts = []
    if each.segments is not None:
        counts.append(counted(each.segments, "segment"))
    if each.readers is not None:
        counts.append(counted(each.readers, "reader"))
    words = [iso_time(each.at), each.kind.ljust(11), each.group or each.stream or "-", ", ".join(counts)]
    return "  ".join(word for word in [*words, _text(each.detail)] if word)


def _text(detail: Mapping[str, Any]) -> str:
    fields = {
        name: value for name, value in detail.items() if name not in _SHOWN_SEPARATELY and value not in ([], {}, None)
    }
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
