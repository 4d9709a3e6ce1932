"""`anabranch copy`: copy a stream, or a range of one, sharing its bytes or with bytes of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.cli.declare import argument, flag, option
from anabranch.cli.options import JSON_OPTION
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.progress import ProgressMeter
from anabranch.cli.ranges import RangeOptions
from anabranch.cli.target_store import WINDOW_OPTION, TargetStoreOptions, finish
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.streams.manager import Streams
    from anabranch.transfer.jobs.follow_until import Until
    from anabranch.transfer.jobs.job import Job


def copy(
    stream: RangeOptions,
    target: str = argument("TARGET", "The new stream, as scope/name."),
    *,
    condition: str | None = option("--where", "CONDITION", "Copy only events for which this is true, in SQL."),
    key: list[str] | None = option("--key", "KEY", "Copy only events with this key; repeatable."),
    to: TargetStoreOptions,
    independent: bool = flag("--independent", "Copy the bytes too, so that no blob is shared."),
    follow: bool = flag("--follow", "Keep the copy up to date with new events."),
    idle: str | None = option("--idle", "TIME", "Stop following after this time without new events: 30s."),
    duration: str | None = option("--for", "TIME", "Stop following after this time: 8h."),
    events: int | None = option("--events", "N", "Stop following after this many new events.", min=0),
    window: int = WINDOW_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Copy a stream, or a range of it, at once and whatever its size: the copy shares its bytes.

    The copy has the same columns, tags, segments and offsets, and can be written to; later writes to either never show
    in the other. Running the same command again changes nothing. Into another store, or with --independent, a job moves
    the bytes, which continues where it was interrupted: see `anabranch job`.

    With --where or --key only events that match are copied, as of now, in the same segments; offsets then leave no gap.
    Where matching events lie scattered, a job stores them again; the rest shares its bytes.

    Examples:

      anabranch copy iot/sensors iot/today --from -1d
      anabranch copy iot/sensors backup/sensors
      anabranch copy 'iot/sensors[-2h,-1h]' iot/an-hour
      anabranch copy iot/sensors iot/hot --where "celsius > 90 AND site = 'north'"
      anabranch copy iot/sensors iot/two --key dev-1 --key dev-2
      anabranch copy iot/sensors iot/sensors --to-store /mnt/usb/river
      anabranch copy iot/sensors iot/mirror --to-store ./mirror --follow --idle 1m
    """
    until = _until(follow, idle, duration, events)
    if condition is not None or key:
        if to.url is not None or independent or until is not None:
            raise InvalidArgument(
                "--where and --key only copy within the store: make that copy first, then copy the result with --to-store, "
                "--independent or --follow"
            )
        with stream.open() as (opened, source):
            result = _filtered(opened, source, target, condition, key or [], window)
    elif to.url is None and not independent and until is None:
        with stream.open_streams() as (streams, source):
            copied = streams.copy(source, target)
            result = _result(streams, target, copied)
    else:
        with stream.open() as (opened, source), to.open(opened) as other:
            with ProgressMeter(f"copying {source.stream}") as meter:
                job = other.jobs.copy(
                    opened,
                    source,
                    target,
                    follow=False if until is None else until,
                    independent=independent or other is not opened,
                    window=window,
                    progress=meter.show,
                )
                copied = finish(job, meter, to.place)
            row = job.row()
            followed = {} if until is None else {"followed": row.followed, "lag": row.lag}
            result = _result(other.streams, target, copied, job=job.id, **followed)
    _print_result(stream.stream, target, result, as_json)


def _filtered(
    opened: Store, source: Any, target: str, condition: str | None, keys: list[str], window: int
) -> dict[str, Any]:
    """Copy the events that match, and return the result."""
    jobs: list[str] = []
    with ProgressMeter(f"copying {source.stream}", unit_bytes=False) as meter:

        def started(job: Job) -> None:
            jobs.append(job.id)
            finish(job, meter)

        copied = opened.streams.copy(
            source,
            target,
            where=condition,
            keys=_keys(opened, source.stream, keys),
            window=window,
            progress=meter.show,
            started=started,
        )
    return _result(opened.streams, target, copied, **({"job": jobs[0]} if jobs else {}))


def _keys(opened: Store, stream: Any, texts: list[str]) -> tuple[Any, ...]:
    """The keys in the type of the stream's key column. Raises InvalidArgument."""
    schema = opened.streams.get(stream).schema
    if not texts or schema.key is None:
        return tuple(texts)
    import pyarrow as pa

    try:
        kind = schema.columns.field(schema.key).type
        return tuple(pa.array(texts, pa.string()).cast(kind).to_pylist())
    except pa.ArrowInvalid as exc:
        raise InvalidArgument(f"--key: expected keys of type {kind}: {exc}") from exc


def _result(streams: Streams, target: str, copied: Any, **more: Any) -> dict[str, Any]:
    return {"name": target, "events": streams.view(target).events, **more, **copied.to_json()}


def _print_result(stream: str, target: str, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    if (filtered := result.get("filtered")) is not None:
        rewritten = f", {counted(filtered['rewritten'], 'event')} of them stored again" if filtered["rewritten"] else ""
        print_note(f"'{target}' holds {counted(filtered['events'], 'event')} of '{stream}'{rewritten}")
        return
    lag = f", {counted(result['lag'], 'event')} behind" if result.get("lag") else ""
    print_note(f"'{target}' is a copy of '{stream}', with {counted(result['events'], 'event')}{lag}")


def _until(follow: bool, idle: str | None, duration: str | None, events: int | None) -> Until | None:
    """When to stop following; None if the copy does not follow."""
    from anabranch.model.amounts import to_duration
    from anabranch.transfer.jobs.follow_until import Until

    if not follow:
        if (idle, duration, events) != (None, None, None):
            raise InvalidArgument("--idle, --for and --events limit --follow: add --follow")
        return None
    idle_s, duration_s = (None if text is None else to_duration(text) / 1_000_000 for text in (idle, duration))
    return Until(idle_s, duration_s, events)
