"""`anabranch stream`: create, list, show, evolve, scale, seal, truncate and delete streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.autoscale import (
    BytesOption,
    EventsOption,
    FactorOption,
    MinimumOption,
    autoscale,
    rate_policy,
)
from anabranch.cli.check_values import CheckOption, parse_checks
from anabranch.cli.check_values import check as check_values
from anabranch.cli.confirm import YesOption, confirm
from anabranch.cli.hold import hold, keep
from anabranch.cli.limit import limit
from anabranch.cli.options import (
    JsonOption,
    MatchOption,
    StoreOption,
    StreamArgument,
    TagOption,
    WithTagOption,
    new_app,
    open_catalog,
    open_store,
    parse_tags,
    split_list,
    store_path,
)
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.ranges import ByOption, time_kind
from anabranch.cli.retain import policy_from_options, retain
from anabranch.cli.watermark import watermark
from anabranch.errors import InvalidArgument
from anabranch.remote.address import is_broker

if TYPE_CHECKING:
    from anabranch.model.stream import StreamView
    from anabranch.store.catalog_store import CatalogStore

app = new_app("Create, list, show, evolve, scale, seal, truncate and delete streams.")

KeyOption = Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="The column that is the routing key.")]
TimeOption = Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="The column that is the event time.")]


@app.command()
def create(
    stream: StreamArgument,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="TEXT", help="Columns as 'name:type, name:type'.")
    ] = None,
    schema_from: Annotated[
        Path | None,
        typer.Option(
            "--schema-from", metavar="FILE", help="Take the columns of a CSV, JSON lines, Parquet or Arrow file."
        ),
    ] = None,
    key: KeyOption = None,
    time: TimeOption = None,
    segments: Annotated[
        int | None, typer.Option("--segments", metavar="N", help="Segments of equal key range; default: 1.")
    ] = None,
    events: EventsOption = None,
    size: BytesOption = None,
    factor: FactorOption = None,
    minimum: MinimumOption = None,
    retain_for: Annotated[
        str | None, typer.Option("--retain-for", metavar="AGE", help="Let events go that are older: 7d, 12h, 30m.")
    ] = None,
    retain_bytes: Annotated[
        str | None, typer.Option("--retain-bytes", metavar="SIZE", help="Keep so many of the newest bytes: 10GB.")
    ] = None,
    retain_group: Annotated[
        list[str] | None,
        typer.Option(
            "--retain-group", metavar="GROUP", help="Let events go that this, and each other group named so, has read."
        ),
    ] = None,
    check: CheckOption = None,
    tag: TagOption = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Do nothing if the stream is there with the same schema.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Create a stream. Without a schema it is raw: its events are bytes with a key and a time.

    Types: string, int64 (int), int8 … uint64, double, float32, bool, timestamp, date, binary, decimal(p, s), list<t>,
    map<k, v>, struct<name: type, …>. A timestamp is in µs, UTC.

    Examples:

      anabranch stream create iot/raw
      anabranch stream create iot/sensors --key device --time at --segments 4 \\
          --schema "device:string, at:timestamp, celsius:double"
      anabranch stream create iot/sensors --schema-from measurements.csv --retain-for 30d
      anabranch stream create iot/clicks --events-per-second 1000 --minimum 2
    """
    rate = rate_policy(events, size, factor, minimum)
    if rate is not None and segments is not None:
        raise InvalidArgument(
            "--segments fixes the number of segments; with a rate, --minimum sets the smallest number"
        )
    if schema is not None and schema_from is not None:
        raise InvalidArgument("pass --schema or --schema-from, not both")
    columns: Any = None
    if schema is not None:
        from anabranch.core.schema_text import parse_schema

        columns = parse_schema(schema)
    elif schema_from is not None:
        from anabranch.cli.intake.open import schema_of_file
        from anabranch.cli.intake.times import DEFAULT_READING, as_times

        columns = as_times(schema_of_file(schema_from), time, DEFAULT_READING)
    with open_catalog(store) as names:
        names.streams.create(
            stream,
            schema=columns,
            key=key,
            time=time,
            scaling=rate or segments or 1,
            tags=parse_tags(tag),
            retention=policy_from_options(retain_for, retain_bytes, groups=retain_group or ()),
            checks=parse_checks(check) or None,
            exist_ok=exist_ok,
        )
        view = names.streams.view(stream)
    made = "stream exists:" if exist_ok else "created stream"
    _print_change(view, as_json, f"{made} '{stream}' with {counted(len(view.current), 'segment')}")


@app.command("list")
def list_streams(
    scope: Annotated[str | None, typer.Argument(metavar="[SCOPE]", help="Only streams of this scope.")] = None,
    tag: WithTagOption = None,
    match: MatchOption = None,
    internal: Annotated[bool, typer.Option("--internal", help="The store's own streams too.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """List streams by name.

    Examples:

      anabranch stream list
      anabranch stream list iot --json | jq -r '.[].name'
      anabranch stream list iot --tag owner=plant-7 --match 'sensor-*'
    """
    from anabranch.cli.show import print_summaries, summaries
    from anabranch.core.list_filter import ListFilter

    selected = ListFilter(tag=tag, pattern=match)

    if is_broker(store_path(store)):
        from anabranch.cli.show_remote import remote_summaries

        with open_store(store) as opened:
            rows = remote_summaries(opened, scope, internal=internal, selected=selected)
    else:
        with open_catalog(store) as names, names.catalog.reading() as reading:
            rows = summaries(reading, scope, internal=internal, selected=selected)
    if as_json:
        print_json(rows)
    else:
        print_summaries(rows)


@app.command()
def show(stream: StreamArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show a stream: columns, segments with their key ranges, events and bytes, epochs, head and tail.

    Examples:

      anabranch stream show iot/sensors
      anabranch stream show iot/sensors --json | jq -r .tail
    """
    from anabranch.cli.show import details, print_details
    from anabranch.model.names import StreamName
    from anabranch.streams.directory.find import need_view

    if is_broker(store_path(store)):
        from anabranch.cli.show_remote import remote_details

        with open_store(store) as opened:
            result = remote_details(opened, stream)
    else:
        with open_catalog(store) as names, names.catalog.reading() as reading:
            result = details(reading, need_view(reading, StreamName.parse(stream)))
    if as_json:
        print_json(result)
    else:
        print_details(result)


@app.command()
def scale(
    stream: StreamArgument,
    segments: Annotated[int | None, typer.Option("--segments", metavar="N", help="So many of equal key range.")] = None,
    split: Annotated[str | None, typer.Option("--split", metavar="SEGMENT", help="Split this segment.")] = None,
    into: Annotated[int, typer.Option("--into", metavar="N", help="Into so many.")] = 2,
    merge: Annotated[
        str | None, typer.Option("--merge", metavar="SEGMENT,SEGMENT", help="Merge segments with adjacent key ranges.")
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Change the number of segments. Writers and readers adapt by themselves; the order of each key is kept.

    Examples:

      anabranch stream scale iot/sensors --segments 8
      anabranch stream scale iot/sensors --split 0.1
      anabranch stream scale iot/sensors --merge 1.4,1.5
    """
    merged = split_list(merge) or []
    if sum([segments is not None, split is not None, bool(merged)]) != 1:
        raise InvalidArgument("pass exactly one of --segments, --split and --merge")
    with open_catalog(store) as names:
        names.streams.scale(stream, segments, split=split, into=into, merge=merged)
        view = names.streams.view(stream)
    current = ", ".join(str(segment.id) for segment in view.current)
    _print_change(view, as_json, f"stream '{stream}' is in epoch {view.info.epoch}, with the segments {current}")


@app.command()
def evolve(
    stream: StreamArgument,
    add: Annotated[
        str | None, typer.Option("--add", metavar="TEXT", help="Columns as 'name:type, name:type'; see stream create.")
    ] = None,
    schema_from: Annotated[
        Path | None,
        typer.Option(
            "--schema-from", metavar="FILE", help="Those of a CSV, JSON lines, Parquet or Arrow file that it lacks."
        ),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Add columns to a stream, at once and whatever its size. They are null in its earlier events.

    Open writers and readers continue: a writer may use the new columns from then on, or leave them out; a reader shows
    those it was opened with. Columns can't be dropped, renamed or given another type: for that, write a new stream with
    a pipeline or a query. To add what a file has while it is written, see anabranch write --add-columns.

    Examples:

      anabranch stream evolve iot/sensors --add "humidity:double, firmware:string"
      anabranch stream evolve iot/sensors --schema-from newer.csv
    """
    if (add is None) == (schema_from is None):
        raise InvalidArgument("pass either --add or --schema-from")
    with open_catalog(store) as names:
        before = names.streams.get(stream).schema.columns.names
        names.streams.add_columns(stream, _columns_to_add(add, schema_from, before))
        view = names.streams.view(stream)
    added = [name for name in view.info.schema.columns.names if name not in before]
    text = f"added {', '.join(added)} to stream '{stream}'" if added else f"stream '{stream}' has these columns already"
    _print_change(view, as_json, text, added=added)


@app.command()
def seal(stream: StreamArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Seal a stream: it stays readable, but nothing more can be appended.

    Example:

      anabranch stream seal iot/sensors
    """
    with open_catalog(store) as names:
        names.streams.seal(stream)
        view = names.streams.view(stream)
    _print_change(view, as_json, f"stream '{stream}' is sealed")


@app.command()
def truncate(
    stream: StreamArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="PLACE", help="tail, a cut, a pointer, a time, or as -2h before now."),
    ] = None,
    events: Annotated[int | None, typer.Option("--events", metavar="N", help="The first so many.", min=0)] = None,
    size: Annotated[
        str | None, typer.Option("--bytes", metavar="SIZE", help="The first, at most so many bytes: 500MB, 10GB.")
    ] = None,
    by: ByOption = "append",
    consumed: Annotated[
        bool, typer.Option("--consumed", help="Only what all subscribed reader groups have read; alone, all of that.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Remove the events before a place, or so many from the beginning. Offsets of the remaining ones do not change.

    Parallel segments are truncated evenly. To remove events automatically, see anabranch stream retain. The groups that
    --consumed waits for are those that anabranch stream retain --group named.

    Examples:

      anabranch stream truncate iot/sensors --at -30d
      anabranch stream truncate iot/sensors --at 2026-01-31T12:00:00Z --yes
      anabranch stream truncate iot/sensors --bytes 10GB --yes
      anabranch stream truncate iot/sensors --consumed --at -1h
    """
    from anabranch.cli.cut import go_on, place

    if consumed and at is None and events is None and size is None:
        at = "tail"
    if sum(each is not None for each in (at, events, size)) != 1:
        raise InvalidArgument("pass exactly one of --at, --events, --bytes and --consumed")
    with open_store(store) as opened:
        cut = place(opened, stream, at or "head", time_kind(by))
        if at is None:
            cut = go_on(opened, stream, cut, events, size, at_most=True)
        gone = opened.cuts.distance(stream, end=cut).events
        if gone:
            what = "what all subscribers have read of " if consumed else ""
            confirm(f"Remove {what}{counted(gone, 'event')} {'of' if consumed else 'from'} '{stream}'?", yes=yes)
        if consumed:
            gone = opened.subscribers.release(stream, cut).events
        else:
            opened.streams.truncate(stream, cut)
        view = opened.streams.view(stream)
    _print_change(view, as_json, f"{counted(gone, 'event')} removed from '{stream}'", removed=gone)


@app.command()
def delete(stream: StreamArgument, yes: YesOption = False, store: StoreOption = None) -> None:
    """Delete a stream. Its bytes are freed by `anabranch collect`.

    Example:

      anabranch stream delete iot/sensors --yes
    """
    with open_catalog(store) as names:
        events, name = _events(names, stream), str(names.streams.get(stream).name)
        also = "" if name == stream else f", of which '{stream}' is an alias,"
        confirm(f"Delete stream '{name}'{also} with its {counted(events, 'event')}?", yes=yes)
        names.streams.delete(stream)
    print_note(f"stream '{stream}' is deleted")


for _verb in (retain, autoscale, limit, check_values, watermark, hold, keep):
    app.command()(_verb)


def _events(names: CatalogStore, stream: str) -> int:
    view = names.streams.view(stream)
    return sum(view.length(segment.id) - segment.head for segment in view.ordered)


def _columns_to_add(text: str | None, file: Path | None, present: Sequence[str]) -> Any:
    """The columns written as text, or those of a file that are not `present`."""
    if text is not None:
        from anabranch.core.schema_text import parse_schema

        return parse_schema(text)
    from anabranch.cli.intake.open import schema_of_file

    assert file is not None, "it is one of the two"
    found = schema_of_file(file)
    for field in reversed([field for field in found if field.name in present]):
        found = found.remove(found.get_field_index(field.name))
    return found


def _print_change(view: StreamView, as_json: bool, text: str, **more: object) -> None:
    from anabranch.cli.show import summary

    if as_json:
        print_json({**summary(view), **more})
    else:
        print_note(text)
