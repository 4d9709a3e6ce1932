"""`anabranch watermark` and `anabranch stream watermark`: up to which time streams are complete."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.options import JsonOption, StoreOption, StreamArgument, new_app, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, say, strong

if TYPE_CHECKING:
    from anabranch.core.watermarks import WatermarkStatus

app = new_app("Watermarks: up to which time streams are complete, and who holds them up.")


@app.command("list")
def list_watermarks(as_json: JsonOption = False, store: StoreOption = None) -> None:
    """List the streams whose writers note times, and how far each watermark is behind the newest event.

    Examples:

      anabranch watermark list
      anabranch watermark list --json | jq '.[] | select(.still_s > 60) | .name'
    """
    with open_store(store) as opened:
        found = opened.watermark_statuses()
    if as_json:
        print_json([told_status(each) for each in found])
    elif found:
        print_columns(
            ("STREAM", "WATERMARK", "BEHIND", "STILL FOR", "WRITERS", "IDLE"), [row_of(each) for each in found]
        )
    else:
        say("no stream has a watermark: no writer has noted a time")


@app.command()
def show(stream: StreamArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show how the watermark of a stream stands: how far it is behind, for how long it has not advanced, and what each writer
    noted last.

    Examples:

      anabranch watermark show iot/sensors
      anabranch watermark show iot/sensors --json | jq -r .cut
    """
    with open_store(store) as opened:
        status = opened.watermark_status(stream)
    if as_json:
        print_json(told_status(status))
        return
    print(strong(status.stream))
    mark = status.mark
    print(f"  watermark  {'-' if mark is None else iso_time(mark.time_us)}")
    print(f"  cut        {'-' if mark is None else mark.cut}")
    print(f"  behind     {duration(_seconds(status.lag_us))}   (the newest event: {iso_time(status.newest_us) or '-'})")
    print(f"  still for  {duration(_seconds(status.still_us))}")
    if status.writers:
        print()
        rows = [
            (each.writer, iso_time(each.time_us), iso_time(each.heard_at), "yes" if each.idle else "no")
            for each in status.writers
        ]
        print_columns(("WRITER", "NOTED", "HEARD OF", "IDLE"), rows, indent="  ")


@app.command()
def idle(
    stream: StreamArgument,
    seconds: Annotated[
        float | None, typer.Argument(metavar="[SECONDS]", help="From now on; default: only show it.")
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show or say for how long a writer may note no time before the watermark waits for it no longer.

    Examples:

      anabranch watermark idle iot/sensors
      anabranch watermark idle iot/sensors 600
    """
    with open_store(store) as opened:
        idle_s = opened.watermark_idle(stream, seconds)
    if as_json:
        print_json({"name": stream, "idle_s": idle_s})
    else:
        print(duration(idle_s))


def watermark(stream: StreamArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show up to which time the stream is complete, as its writers noted, and the cut behind which nothing older follows.

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


def row_of(status: WatermarkStatus) -> tuple[object, ...]:
    """A status in columns: name, time, how far behind, still for how long, writers, idle ones."""
    time = None if status.mark is None else iso_time(status.mark.time_us)
    behind, still = duration(_seconds(status.lag_us)), duration(_seconds(status.still_us))
    return (status.stream, time, behind, still, len(status.writers), len(status.idle))


def told_status(status: WatermarkStatus) -> dict[str, Any]:
    """A status as JSON."""
    mark = status.mark
    return {
        "name": status.stream,
        "time": None if mark is None else iso_time(mark.time_us),
        "cut": None if mark is None else str(mark.cut),
        "advanced_at": None if mark is None else iso_time(mark.at),
        "newest": iso_time(status.newest_us),
        "lag_s": _seconds(status.lag_us),
        "still_s": _seconds(status.still_us),
        "writers": [
            {
                "writer": each.writer,
                "time": iso_time(each.time_us),
                "heard_at": iso_time(each.heard_at),
                "idle": each.idle,
            }
            for each in status.writers
        ],
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def duration(seconds: float | None) -> str:
    """`4.2 s`, from two minutes on `0:02:13`."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
