"""`anabranch watermark` and `anabranch stream watermark`: the event time up to which streams are complete."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from anabranch.cli.declare import argument, new_app
from anabranch.cli.options import JSON_OPTION, STREAM_ARGUMENT, open_store
from anabranch.cli.output import iso_time, print_columns, print_json, print_note, put_line

if TYPE_CHECKING:
    from anabranch.core.watermarks import WatermarkStatus

app = new_app()


@app.command("list")
def list_watermarks(as_json: bool = JSON_OPTION) -> None:
    """List the streams whose writers note times, and how far each watermark is behind the newest event.

    Examples:

      anabranch watermark list
      anabranch watermark list --json | jq '.[] | select(.still_s > 60) | .name'
    """
    with open_store() as opened:
        found = opened.watermarks.statuses()
    if as_json:
        print_json([status_json(each) for each in found])
    elif found:
        rows = [
            (
                each.stream,
                None if each.watermark is None else iso_time(each.watermark.time_us),
                duration(_seconds(each.lag_us)),
                duration(_seconds(each.stalled_us)),
                len(each.writers),
                len(each.idle),
            )
            for each in found
        ]
        print_columns(("STREAM", "WATERMARK", "BEHIND", "STILL FOR", "WRITERS", "IDLE"), rows)
    else:
        print_note("no stream has a watermark: no writer has noted a time")


@app.command()
def show(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show the watermark of a stream: how far it is behind, for how long it has not advanced, and what each writer
    noted last.

    Examples:

      anabranch watermark show iot/sensors
      anabranch watermark show iot/sensors --json | jq -r .cut
    """
    with open_store() as opened:
        status = opened.watermarks.status(stream)
    if as_json:
        print_json(status_json(status))
        return
    put_line(status.stream, bold=True)
    mark = status.watermark
    put_line(f"  watermark  {'-' if mark is None else iso_time(mark.time_us)}")
    put_line(f"  cut        {'-' if mark is None else mark.cut}")
    put_line(
        f"  behind     {duration(_seconds(status.lag_us))}   (the newest event: {iso_time(status.newest_us) or '-'})"
    )
    put_line(f"  still for  {duration(_seconds(status.stalled_us))}")
    if status.writers:
        put_line()
        rows = [
            (each.writer, iso_time(each.time_us), iso_time(each.noted_at), "yes" if each.idle else "no")
            for each in status.writers
        ]
        print_columns(("WRITER", "NOTED", "LAST SEEN", "IDLE"), rows, indent="  ")


@app.command()
def idle(
    stream: str = STREAM_ARGUMENT,
    seconds: float | None = argument("[SECONDS]", "The new time in seconds; default: only show it.", default=None),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show or set for how long a writer may note no time before the watermark stops waiting for it.

    Examples:

      anabranch watermark idle iot/sensors
      anabranch watermark idle iot/sensors 600
    """
    with open_store() as opened:
        idle_s = opened.watermarks.idle(stream, seconds)
    if as_json:
        print_json({"name": stream, "idle_s": idle_s})
    else:
        put_line(duration(idle_s))


def watermark(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show up to which event time the stream is complete, according to its writers, and the cut after which no older
    event follows.

    Examples:

      anabranch stream watermark iot/sensors
      anabranch read iot/sensors --to "$(anabranch stream watermark iot/sensors --json | jq -r .cut)"
    """
    with open_store() as opened:
        mark = opened.watermarks.get(stream)
    time, cut = (None, None) if mark is None else (iso_time(mark.time_us), str(mark.cut))
    if as_json:
        print_json({"name": stream, "time": time, "cut": cut})
    elif mark is None:
        print_note(f"'{stream}' has no watermark: no writer has noted a time")
    else:
        put_line(f"{time}  {cut}")


def status_json(status: WatermarkStatus) -> dict[str, Any]:
    """Returns a status as JSON."""
    mark = status.watermark
    return {
        "name": status.stream,
        "time": None if mark is None else iso_time(mark.time_us),
        "cut": None if mark is None else str(mark.cut),
        "advanced_at": None if mark is None else iso_time(mark.made_at),
        "newest": iso_time(status.newest_us),
        "lag_s": _seconds(status.lag_us),
        "still_s": _seconds(status.stalled_us),
        "writers": [
            {
                "writer": each.writer,
                "time": iso_time(each.time_us),
                "noted_at": iso_time(each.noted_at),
                "idle": each.idle,
            }
            for each in status.writers
        ],
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def duration(seconds: float | None) -> str:
    """Formats seconds as `4.2 s`, from two minutes on as `0:02:13`."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
