"""`anabranch stream`: create, list, show, evolve, scale, seal, truncate and delete streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.autoscale import autoscale
from anabranch.cli.check_values import check as check_values
from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.create_stream import create
from anabranch.cli.declare import argument, flag, new_app, option
from anabranch.cli.hold import hold, keep
from anabranch.cli.limit import limit
from anabranch.cli.options import (
    INTERNAL_OPTION,
    JSON_OPTION,
    MATCH_OPTION,
    STREAM_ARGUMENT,
    WITH_TAG_OPTION,
    open_catalog,
    open_store,
    split_list,
)
from anabranch.cli.output import counted, print_json, print_note
from anabranch.cli.ranges import BY_OPTION, time_kind
from anabranch.cli.retain import retain
from anabranch.cli.watermark import watermark
from anabranch.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa


app = new_app()

app.command()(create)


@app.command("list")
def list_streams(
    scope: str | None = argument("[SCOPE]", "Only streams of this scope.", default=None),
    tag: list[str] | None = WITH_TAG_OPTION,
    match: str | None = MATCH_OPTION,
    internal: bool = INTERNAL_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """List streams by name.

    Examples:

      anabranch stream list
      anabranch stream list iot --json | jq -r '.[].name'
      anabranch stream list iot --tag owner=plant-7 --match 'sensor-*'
    """
    from anabranch.cli.show import print_summaries, summaries

    with open_catalog() as names:
        rows = summaries(names, scope, internal=internal, tag=tag, pattern=match)
    if as_json:
        print_json(rows)
    else:
        print_summaries(rows)


@app.command()
def show(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show a stream: columns, segments with their key ranges, events and bytes, epochs, head and tail.

    Examples:

      anabranch stream show iot/sensors
      anabranch stream show iot/sensors --json | jq -r .tail
    """
    from anabranch.cli.show import details, print_details

    with open_catalog() as names:
        result = details(names, stream)
    if as_json:
        print_json(result)
    else:
        print_details(result)


@app.command()
def scale(
    stream: str = STREAM_ARGUMENT,
    segments: int | None = option("--segments", "N", "This many segments of equal key range."),
    split: str | None = option("--split", "SEGMENT", "Split this segment."),
    into: int = option("--into", "N", "With --split: into this many segments.", default=2),
    merge: str | None = option("--merge", "SEGMENT,SEGMENT", "Merge segments with adjacent key ranges."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Change the number of segments. Writers and readers adapt by themselves; the order of each key is kept.

    Examples:

      anabranch stream scale iot/sensors --segments 8
      anabranch stream scale iot/sensors --split 0.1
      anabranch stream scale iot/sensors --merge 1.4,1.5
    """
    from anabranch.cli.show import print_change

    merged = split_list("--merge", merge)
    if sum([segments is not None, split is not None, bool(merged)]) != 1:
        raise InvalidArgument("pass exactly one of --segments, --split and --merge")
    with open_catalog() as names:
        names.streams.scale(stream, segments, split=split, into=into, merge=merged)
        view = names.streams.view(stream)
    current = ", ".join(str(segment.id) for segment in view.current)
    print_change(view, as_json, f"stream '{stream}' is in epoch {view.info.epoch}, with the segments {current}")


@app.command()
def evolve(
    stream: str = STREAM_ARGUMENT,
    add: str | None = option("--add", "TEXT", "Add columns: 'name:type, name:type'; see stream create."),
    schema_from: Path | None = option(
        "--schema-from", "FILE", "Add the columns of a CSV, JSON lines, Parquet or Arrow file that the stream lacks."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Add columns to a stream, at once and whatever its size. They are null in its earlier events.

    Open writers and readers continue: a writer may use the new columns from then on, or leave them out; a reader shows
    those it was opened with. Columns can't be dropped, renamed or given another type: for that, write a new stream with
    a pipeline or a query. To add what a file has while it is written, see anabranch write --add-columns.

    Examples:

      anabranch stream evolve iot/sensors --add "humidity:double, firmware:string"
      anabranch stream evolve iot/sensors --schema-from newer.csv
    """
    from anabranch.cli.show import print_change

    if (add is None) == (schema_from is None):
        raise InvalidArgument("pass either --add or --schema-from")
    with open_catalog() as names:
        before = names.streams.get(stream).schema.columns.names
        names.streams.add_columns(stream, _columns_to_add(add, schema_from, before))
        view = names.streams.view(stream)
    added = [name for name in view.info.schema.columns.names if name not in before]
    text = f"added {', '.join(added)} to stream '{stream}'" if added else f"stream '{stream}' has these columns already"
    print_change(view, as_json, text, added=added)


@app.command()
def seal(stream: str = STREAM_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Seal a stream: it stays readable, but nothing more can be appended.

    Example:

      anabranch stream seal iot/sensors
    """
    from anabranch.cli.show import print_change

    with open_catalog() as names:
        names.streams.seal(stream)
        view = names.streams.view(stream)
    print_change(view, as_json, f"stream '{stream}' is sealed")


@app.command()
def truncate(
    stream: str = STREAM_ARGUMENT,
    at: str | None = option("--at", "PLACE", "tail, a cut, a pointer, a time, or -2h (two hours ago)."),
    events: int | None = option("--events", "N", "Remove this many of the first events.", min=0),
    size: str | None = option("--bytes", "SIZE", "Remove the first events, at most this many bytes: 500MB, 10GB."),
    by: str = BY_OPTION,
    consumed: bool = flag(
        "--consumed", "Remove only what all subscribed reader groups have read; without a position, all of it."
    ),
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Remove the events before a position, or this many from the beginning. The remaining offsets do not change.

    Parallel segments are truncated evenly. To remove events automatically, see anabranch stream retain. The groups that
    --consumed waits for are those that anabranch stream retain --group named.

    Examples:

      anabranch stream truncate iot/sensors --at -30d
      anabranch stream truncate iot/sensors --at 2026-01-31T12:00:00Z --yes
      anabranch stream truncate iot/sensors --bytes 10GB --yes
      anabranch stream truncate iot/sensors --consumed --at -1h
    """
    from anabranch.cli.cut import advance_cut
    from anabranch.cli.show import print_change
    from anabranch.cli.stream_places import parse_place, resolve

    if consumed and at is None and events is None and size is None:
        at = "tail"
    if sum(each is not None for each in (at, events, size)) != 1:
        raise InvalidArgument("pass exactly one of --at, --events, --bytes and --consumed")
    with open_store() as opened:
        place = parse_place(at or "head", now=opened.runtime.clock.now())
        cut = resolve(opened, stream, place, by=time_kind(by))
        if at is None:
            cut = advance_cut(opened, stream, cut, events, size, at_most=True)
        gone = opened.cuts.distance(stream, end=cut).events
        if gone:
            what = "what all subscribers have read of " if consumed else ""
            confirm(f"Remove {what}{counted(gone, 'event')} {'of' if consumed else 'from'} '{stream}'?", yes=yes)
        if consumed:
            gone = opened.subscribers.release(stream, cut).events
        else:
            opened.streams.truncate(stream, cut)
        view = opened.streams.view(stream)
    print_change(view, as_json, f"{counted(gone, 'event')} removed from '{stream}'", removed=gone)


@app.command()
def delete(stream: str = STREAM_ARGUMENT, yes: bool = YES_OPTION) -> None:
    """Delete a stream. Its bytes are freed by `anabranch collect`.

    Example:

      anabranch stream delete iot/sensors --yes
    """
    with open_catalog() as names:
        view = names.streams.view(stream)
        name = str(view.info.name)
        also = "" if name == stream else f", of which '{stream}' is an alias,"
        confirm(f"Delete stream '{name}'{also} with its {counted(view.events, 'event')}?", yes=yes)
        names.streams.delete(stream)
    print_note(f"stream '{stream}' is deleted")


for _verb in (retain, autoscale, limit, check_values, watermark, hold, keep):
    app.command()(_verb)


def _columns_to_add(text: str | None, file: Path | None, present: Sequence[str]) -> pa.Schema:
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
