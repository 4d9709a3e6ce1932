"""`anabranch append`: append a stream, or a range of one, to the end of another."""

from __future__ import annotations

from typing import Annotated

from anabranch.cli.declare import argument, option
from anabranch.cli.options import JsonOption, split_list, store_path
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import ByOption, FromOption, RangeArgument, ToOption, open_range, open_store_range
from anabranch.cli.target_store import (
    ToBlobsOption,
    ToHistoryOption,
    ToKeysOption,
    ToStoreOption,
    WindowOption,
    check_other_store,
    finish,
    open_other_store,
)


def append(
    stream: RangeArgument,
    onto: Annotated[str, argument("ONTO", "The stream to append to, as scope/name.")],
    start: FromOption = None,
    end: ToOption = None,
    by: ByOption = "append",
    deduplicate: Annotated[
        str | None,
        option(
            "--deduplicate",
            "COLUMNS",
            "Skip events that are already there, compared by these columns: a,b. Moves bytes.",
        ),
    ] = None,
    to_store: ToStoreOption = None,
    to_blobs: ToBlobsOption = None,
    to_history: ToHistoryOption = None,
    to_keys: ToKeysOption = None,
    window: WindowOption = 4,
    as_json: JsonOption = False,
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
    check_other_store(to_store, to_blobs, to_history, to_keys)
    columns = split_list(deduplicate) or []
    if to_store is None and not columns:
        with open_range(stream, start, end, by) as (streams, source):
            joined = streams.append(source, onto)
        events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    else:
        with open_store_range(stream, start, end, by) as (opened, source):
            other = opened if to_store is None else open_other_store(to_store, to_blobs, to_history, to_keys)
            try:
                with ProgressMeter(f"copying {source.stream}") as meter:
                    job = other.jobs.append(
                        opened, source, onto, deduplicate=columns, window=window, progress=meter.show
                    )
                    joined = finish(job, meter, to_store or store_path())
                events = job.row().events - joined.repeats
            finally:
                if other is not opened:
                    other.close()
    repeats = {"repeats": joined.repeats} if columns else {}
    if as_json:
        print_json({"name": onto, "appended": events, **repeats, **joined.to_json()})
    else:
        left_out = f"; {counted(joined.repeats, 'repeat')} left out" if columns else ""
        print_note(f"{counted(events, 'event')} of '{stream}' are appended to '{onto}'{left_out}")
