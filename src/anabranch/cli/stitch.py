"""`anabranch stitch`: concatenate several streams into a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION, open_store, split_list
from anabranch.cli.output import counted, print_result
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import BY_OPTION, open_ranges, resolve_range, time_kind
from anabranch.cli.target_store import WINDOW_OPTION, SourceStoreOptions, TargetStoreOptions, finish
from anabranch.errors import InvalidArgument
from anabranch.model.stream_range import StreamRange

if TYPE_CHECKING:
    from anabranch.model.time_kind import TimeKind
    from anabranch.store import Store
    from anabranch.transfer.jobs.sources import InStore


def stitch(
    sources: list[str] = argument(
        "STREAM...", "The streams in their order, or ranges of them: scope/name\\[start,end]."
    ),
    into: str = option("--into", "STREAM", "The new stream, as scope/name.", default=...),
    *,
    drop_sources: bool = flag(
        "--drop-sources", "Delete the sources in the same step; the new stream may take the name of one."
    ),
    deduplicate: str | None = option(
        "--deduplicate", "COLUMNS", "Skip repeated events, compared by these columns: a,b. Moves bytes."
    ),
    prefer: str | None = option(
        "--prefer", "NUMBERS", "Which stream's events are kept, by the streams' numbers: 2,1 prefers the second."
    ),
    by: str = BY_OPTION,
    others: SourceStoreOptions,
    to: TargetStoreOptions,
    window: int = WINDOW_OPTION,
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
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
    if prefer is not None and deduplicate is None:
        raise InvalidArgument("--prefer chooses which of several repeated events to keep: add --deduplicate")
    more: dict[str, object] = {}
    left_out = ""
    if to.url is None and deduplicate is None and not others.named and not _elsewhere(sources):
        with open_ranges(sources, by) as (streams, parts):
            if drop_sources:
                _confirm(parts, yes=yes)
            joined = streams.stitch(parts, into=into, keep_sources=not drop_sources)
        events = sum(moved.stop - moved.start for _, moves in joined.parts for moved in moves)
    else:
        if drop_sources:
            _confirm([StreamRange.parse(text) for text in sources], yes=yes)
        columns, order, times = split_list("--deduplicate", deduplicate), _numbers(prefer, len(sources)), time_kind(by)
        with others.open() as stores, open_store() as opened, to.open(opened) as target:
            with ProgressMeter("stitching") as meter:
                job = target.jobs.stitch(
                    opened,
                    [_source(opened, stores, text, times) for text in sources],
                    into,
                    keep_sources=not drop_sources,
                    deduplicate=columns,
                    prefer=order,
                    window=window,
                    progress=meter.show,
                )
                joined = finish(job, meter, to.place)
            events = target.streams.view(into).events
        more = {"job": job.id, "repeats": joined.repeats}
        left_out = f"; {counted(joined.repeats, 'repeat')} left out" if columns else ""
    result = {"name": into, "events": events, **more, **joined.to_json()}
    print_result(as_json, result, f"created '{into}' with {counted(events, 'event')}{left_out}")


def _confirm(parts: Sequence[StreamRange], *, yes: bool) -> None:
    named = ", ".join(f"'{name}'" for name in dict.fromkeys(part.stream for part in parts))
    confirm(f"Delete {named} after the stitch?", yes=yes)


def _source(opened: Store, others: Mapping[str, Store], text: str, by: TimeKind) -> StreamRange | InStore:
    """Parses `scope/name[start,end]`, preceded by `name:` if that is the name of another store."""
    from anabranch.transfer.jobs.sources import InStore  # too slow to load for `--help`

    name, colon, rest = text.partition(":")
    if not (colon and _elsewhere([text])):
        return resolve_range(opened, StreamRange.parse(text), by)
    if name not in others:
        raise InvalidArgument(f"the location of store '{name}' is missing: add --from-store {name}=PATH")
    return InStore(others[name], resolve_range(others[name], StreamRange.parse(rest), by))


def _elsewhere(sources: Sequence[str]) -> bool:
    """True if a source is in another store."""
    return any(":" in text.partition("[")[0] for text in sources)


def _numbers(text: str | None, count: int) -> list[int]:
    """Parses `2,1`, for `count` streams, as numbers from 0."""
    numbers = {str(number + 1): number for number in range(count)}
    parsed = split_list("--prefer", text)
    if not numbers.keys() >= {*parsed} or len({*parsed}) < len(parsed):
        raise InvalidArgument(f"--prefer takes numbers of streams from 1 to {count}, each once, as 2,1, not '{text}'")
    return [numbers[each] for each in parsed]
