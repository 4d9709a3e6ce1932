"""`anabranch stream watermark`: up to which time a stream is complete."""

from __future__ import annotations

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, open_store
from anabranch.cli.output import iso_time, print_json, say


def watermark(stream: StreamArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show up to which time a stream is complete, as its writers noted, and the cut behind which nothing older follows.

    Examples:

      anabranch stream watermark iot/sensors
      anabranch read iot/sensors --to "$(anabranch stream watermark iot/sensors --json | jq -r .cut)"
    """
    with open_store(store) as opened:
        mark = opened.watermark(stream)
    time, cut = (None, None) if mark is None else (iso_time(mark.time_us), str(mark.cut))
    if as_json:
        print_json({"name": stream, "time": time, "cut": cut})
    elif mark is None:
        say(f"'{stream}' has no watermark: none of its writers has noted a time")
    else:
        print(f"{time}  {cut}")
