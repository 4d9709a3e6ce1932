"""`anabranch append`: append a stream, or a range of one, to the end of another."""

from __future__ import annotations

from anabranch.cli.declare import argument, option
from anabranch.cli.options import JSON_OPTION, split_list
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import RangeOptions
from anabranch.cli.target_store import WINDOW_OPTION, TargetStoreOptions, finish


def append(
    stream: RangeOptions,
    onto: str = argument("ONTO", "The stream to append to, as scope/name."),
    *,
    deduplicate: str | None = option(
        "--deduplicate", "COLUMNS", "Skip events that are already there, compared by these columns: a,b. Moves bytes."
    ),
    to: TargetStoreOptions,
    window: int = WINDOW_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Append a stream, or a range of it, to another, at once and whatever its size. Writers and readers continue.

    Columns may differ; where their types differ, the wider one is used. Keys and times must be the same columns.
    Running it twice appends twice.

    Examples:

      anabranch append iot/yesterday iot/sensors
      anabranch append iot/raw iot/all --from 2026-01-31T12:00:00Z
      anabranch append iot/sensors iot/all --to-store postgresql://db/river --to-blobs s3://bucket/river
      anabranch append iot/repaired iot/all --deduplicate device,at
    """
    columns = split_list("--deduplicate", deduplicate)
    if to.url is None and not columns:
        with stream.open_streams() as (streams, source):
            joined = streams.append(source, onto)
        events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    else:
        with (
            stream.open() as (opened, source),
            to.open(opened) as target,
            ProgressMeter(f"copying {source.stream}") as meter,
        ):
            job = target.jobs.append(opened, source, onto, deduplicate=columns, window=window, progress=meter.show)
            joined = finish(job, meter, to.place)
            events = job.row().events - joined.repeats
    repeats = {"repeats": joined.repeats} if columns else {}
    if as_json:
        print_json({"name": onto, "appended": events, **repeats, **joined.to_json()})
    else:
        left_out = f"; {counted(joined.repeats, 'repeat')} left out" if columns else ""
        print_note(f"{counted(events, 'event')} of '{stream.stream}' are appended to '{onto}'{left_out}")
