"""`anabranch stitch`: concatenate several streams into a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.confirm import YesOption, confirm
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JsonOption, open_store, split_list, store_path
from anabranch.cli.output import counted, print_json, print_note, print_result
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import ByOption, open_ranges, resolve_range, time_kind
from anabranch.cli.target_store import (
    FromBlobsOption,
    FromHistoryOption,
    FromKeysOption,
    FromStoreOption,
    ToBlobsOption,
    ToHistoryOption,
    ToKeysOption,
    ToStoreOption,
    WindowOption,
    check_other_store,
    finish,
    open_named,
    open_other_store,
)
from anabranch.errors import InvalidArgument
from anabranch.model.stream_range import StreamRange

if TYPE_CHECKING:
    from anabranch.model.time_kind import TimeKind
    from anabranch.store import Store
    from anabranch.transfer.jobs.sources import InStore


_Sources = Annotated[
    list[str], argument("STREAM...", "The streams in their order, or ranges of them: scope/name\\[start,end].")
]
_Into = Annotated[str, option("--into", "STREAM", "The new stream, as scope/name.")]
_DropSources = Annotated[
    bool, flag("--drop-sources", "Delete the sources in the same step; the new stream may take the name of one.")
]
_Deduplicate = Annotated[
    str | None, option("--deduplicate", "COLUMNS", "Skip repeated events, compared by these columns: a,b. Moves bytes.")
]
_Prefer = Annotated[
    str | None,
    option("--prefer", "NUMBERS", "Which stream's events are kept, by the streams' numbers: 2,1 prefers the second."),
]


def stitch(
    sources: _Sources,
    into: _Into,
    drop_sources: _DropSources = False,
    deduplicate: _Deduplicate = None,
    prefer: _Prefer = None,
    by: ByOption = "append",
    from_store: FromStoreOption = None,
    from_blobs: FromBlobsOption = None,
    from_history: FromHistoryOption = None,
    from_keys: FromKeysOption = None,
    to_store: ToStoreOption = None,
    to_blobs: ToBlobsOption = None,
    to_history: ToHistoryOption = None,
    to_keys: ToKeysOption = None,
    window: WindowOption = 4,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Stitch streams together, at once and whatever their size: all of the first, then all of the second, and so on.

    Columns may differ; where their types differ, the wider one is used. Keys and times must be the same columns.
    Sources may live in other stores; a job then moves the bytes. Places in a range are head, tail, a cut, a pointer, a
    time, or -2h (two hours ago); without one, the range begins at the head or ends at the tail. Times are append times,
    or with --by event the events' own.

    Examples:

      anabranch stitch 'iot/sensors[,2026-01-31T12:00:00Z]' 'iot/repaired[-2h,]' --into iot/right
      anabranch stitch 'iot/sensors[,2026-01-31]' 'iot/repaired[2026-01-31,]' --by event --into iot/mended
      anabranch stitch iot/january iot/february iot/march --into iot/quarter
      anabranch stitch iot/old iot/new --into iot/new --drop-sources
      anabranch stitch iot/left iot/right --into iot/both --deduplicate device,at
      anabranch stitch iot/here lake:iot/there --from-store lake=/mnt/usb/river --into iot/all
    """
    check_other_store(to_store, to_blobs, to_history, to_keys)
    if prefer is not None and deduplicate is None:
        raise InvalidArgument("--prefer chooses which of several repeated events to keep: add --deduplicate")
    if to_store is not None or deduplicate is not None or from_store or _elsewhere(sources):
        if drop_sources:
            _confirm([StreamRange.parse(text) for text in sources], yes=yes)
        where = (to_store, to_blobs, to_history, to_keys)
        with open_named(from_store, from_blobs, from_history, from_keys) as others:
            _by_job(others, sources, into, by, deduplicate, prefer, where, window, as_json, drop_sources)
        return
    with open_ranges(sources, by) as (streams, parts):
        if drop_sources:
            _confirm(parts, yes=yes)
        joined = streams.stitch(parts, into=into, keep_sources=not drop_sources)
    events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    print_result(
        as_json,
        {"name": into, "events": events, **joined.to_json()},
        f"created '{into}' with {counted(events, 'event')}",
    )


def _by_job(
    others: Mapping[str, Store],
    sources: list[str],
    into: str,
    by: str,
    deduplicate: str | None,
    prefer: str | None,
    to: tuple[str | None, str | None, str | None, str | None],
    window: int,
    as_json: bool,
    drop_sources: bool,
) -> None:
    """Stitch with a job that moves the bytes, perhaps into another store."""
    to_store, *where = to
    columns, order, times = split_list(deduplicate) or [], _numbers(prefer, len(sources)), time_kind(by)
    with open_store() as opened:
        other = opened if to_store is None else open_other_store(to_store, *where)
        try:
            with ProgressMeter("stitching") as meter:
                parts = [_source(opened, others, text, times) for text in sources]
                job = other.jobs.stitch(
                    opened,
                    parts,
                    into,
                    keep_sources=not drop_sources,
                    deduplicate=columns,
                    prefer=order,
                    window=window,
                    progress=meter.show,
                )
                joined = finish(job, meter, to_store or store_path())
            view = other.streams.view(into)
        finally:
            if other is not opened:
                other.close()
    events = sum(view.length(segment.id) - segment.head for segment in view.ordered)
    if as_json:
        print_json({"name": into, "events": events, "job": job.id, "repeats": joined.repeats, **joined.to_json()})
    else:
        left_out = f"; {counted(joined.repeats, 'repeat')} left out" if columns else ""
        print_note(f"created '{into}' with {counted(events, 'event')}{left_out}")


def _confirm(parts: Sequence[StreamRange], *, yes: bool) -> None:
    named = ", ".join(f"'{name}'" for name in dict.fromkeys(part.stream for part in parts))
    confirm(f"Delete {named} after the stitch?", yes=yes)


def _source(opened: Store, others: Mapping[str, Store], text: str, by: TimeKind) -> StreamRange | InStore:
    """Parses `scope/name[start,end]`, preceded by `name:` if that is the name of another store."""
    from anabranch.transfer.jobs.sources import InStore  # too slow to load for `--help`

    name, colon, rest = text.partition(":")
    if not (colon and _elsewhere([text])):
        return _range(opened, text, by)
    if name not in others:
        raise InvalidArgument(f"the location of store '{name}' is missing: add --from-store {name}=PATH")
    return InStore(others[name], _range(others[name], rest, by))


def _elsewhere(sources: Sequence[str]) -> bool:
    """True if a source is in another store."""
    return any(":" in text.partition("[")[0] for text in sources)


def _range(opened: Store, text: str, by: TimeKind) -> StreamRange:
    parsed = StreamRange.parse(text)
    return parsed if parsed == StreamRange(parsed.stream) else resolve_range(opened, parsed, by)


def _numbers(text: str | None, count: int) -> list[int]:
    """Parses `2,1`, for `count` streams, as numbers from 0."""
    numbers = {str(number + 1): number for number in range(count)}
    parsed = split_list(text) or []
    if not numbers.keys() >= {*parsed} or len({*parsed}) < len(parsed):
        raise InvalidArgument(f"--prefer takes numbers of streams from 1 to {count}, each once, as 2,1, not '{text}'")
    return [numbers[each] for each in parsed]
