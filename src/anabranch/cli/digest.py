"""`anabranch digest`: one digest for the events of a stream, however they are stored."""

from __future__ import annotations

from anabranch.cli.options import JSON_OPTION
from anabranch.cli.output import print_json, put_line
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import RangeOptions


def digest(
    stream: RangeOptions,
    as_json: bool = JSON_OPTION,
) -> None:
    """Print a digest (SHA-256) of all events of a stream: the same for a copy, an archive and an import of it.

    It covers segments, offsets, keys, values and append times, and does not depend on where and how they are stored.

    Examples:

      anabranch digest iot/sensors
      anabranch digest iot/sensors --to 2026-01-01 --json
    """
    with (
        stream.open() as (opened, part),
        ProgressMeter("summing", unit_bytes=False) as meter,
    ):
        found = opened.archives.digest(part, progress=meter.show)
    if as_json:
        segments = [
            {"segment": str(each.segment), "from": each.start, "to": each.stop, "digest": each.digest}
            for each in found.segments
        ]
        print_json({"digest": found.value, "events": found.events, "segments": segments})
    else:
        put_line(found.value)
