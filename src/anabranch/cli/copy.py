"""`anabranch copy`: a stream, or a range of one, as a new stream over the same bytes, or in bytes of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.elsewhere import (
    ToBlobsOption,
    ToHistoryOption,
    ToKeysOption,
    ToStoreOption,
    WindowOption,
    finish,
    open_elsewhere,
)
from anabranch.cli.options import JsonOption, StoreOption, new_app, store_path
from anabranch.cli.output import counted, print_json, say
from anabranch.cli.progress import Meter
from anabranch.cli.ranges import ByOption, FromOption, RangeArgument, ToOption, open_range, open_store_range
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.streams.jobs.until import Until
    from anabranch.streams.manager import Streams

app = new_app()


@app.command()
def copy(
    stream: RangeArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The new stream, as scope/name.")],
    start: FromOption = None,
    end: ToOption = None,
    by: ByOption = "append",
    to_store: ToStoreOption = None,
    to_blobs: ToBlobsOption = None,
    to_history: ToHistoryOption = None,
    to_keys: ToKeysOption = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="Copy the bytes too, so that no blob is shared.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Keep the copy up to date with new events.")] = False,
    idle: Annotated[
        str | None, typer.Option("--idle", metavar="TIME", help="Follow until nothing new came for so long, as 30s.")
    ] = None,
    lasting: Annotated[str | None, typer.Option("--for", metavar="TIME", help="Follow for so long, as 8h.")] = None,
    events: Annotated[
        int | None, typer.Option("--events", metavar="N", min=0, help="Follow until so many new events were copied.")
    ] = None,
    window: WindowOption = 4,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Copy a stream, or a range of it, at once and whatever its size: the copy shares its bytes.

    It has the same columns, tags, segments and offsets, and can be written to; later writes to either never show in
    the other. Asked again with the same arguments, nothing changes. Into another store, or --independent, the bytes are
    moved by a job, which goes on where it was when it is interrupted: see `anabranch job`.

    Examples:

      anabranch copy iot/sensors iot/today --from -1d
      anabranch copy iot/sensors backup/sensors
      anabranch copy 'iot/sensors[-2h,-1h]' iot/an-hour
      anabranch copy iot/sensors iot/sensors --to-store /mnt/usb/river
      anabranch copy iot/sensors iot/mirror --to-store ./mirror --follow --idle 1m
    """
    until = _until(follow, idle, lasting, events)
    if to_store is None and not independent and until is None:
        with open_range(store, stream, start, end, by) as (streams, source):
            copied = streams.copy(source, target)
            told = _told(streams, target)
        _say(stream, target, {**told, **copied.to_json()}, as_json)
        return
    with open_store_range(store, stream, start, end, by) as (opened, source):
        other = opened if to_store is None else open_elsewhere(to_store, to_blobs, to_history, to_keys)
        try:
            told = _copied(opened, other, source, target, until, independent, window, to_store or store_path(store))
        finally:
            if other is not opened:
                other.close()
    _say(stream, target, told, as_json)


def _copied(
    opened: Store,
    other: Store,
    source: Any,
    target: str,
    until: Until | None,
    independent: bool,
    window: int,
    where: str,
) -> dict[str, Any]:
    """Copy by a job, and what became of it."""
    with Meter(f"copying {source.stream}") as meter:
        job = other.jobs.copy(
            opened,
            source,
            target,
            follow=False if until is None else until,
            independent=independent or other is not opened,
            window=window,
            progress=meter.show,
        )
        copied = finish(job, meter, where)
    row = job.row()
    followed = {"followed": row.followed, "lag": row.lag} if until is not None else {}
    return {**_told(other.streams, target), "job": job.id, **followed, **copied.to_json()}


def _told(streams: Streams, target: str) -> dict[str, Any]:
    view = streams.view(target)
    return {"name": target, "events": sum(view.length(segment.id) - segment.head for segment in view.ordered)}


def _say(stream: str, target: str, told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    lag = f", {counted(told['lag'], 'event')} behind" if told.get("lag") else ""
    say(f"'{target}' is a copy of '{stream}', with {counted(told['events'], 'event')}{lag}")


def _until(follow: bool, idle: str | None, lasting: str | None, events: int | None) -> Until | None:
    """When to stop following; None where the copy does not follow."""
    from anabranch.model.amounts import to_duration
    from anabranch.streams.jobs.until import Until

    if not follow:
        if (idle, lasting, events) != (None, None, None):
            raise InvalidArgument("--idle, --for and --events say how long to follow: add --follow")
        return None
    return Until(
        None if idle is None else to_duration(idle) / 1_000_000,
        None if lasting is None else to_duration(lasting) / 1_000_000,
        events,
    )
