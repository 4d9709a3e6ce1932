"""`anabranch group`: the reader groups of a store, how far they are, and who reads what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.options import JsonOption, StoreOption, new_app, open_store
from anabranch.cli.output import confirm, counted, iso_time, print_columns, print_json, say, size_text, strong
from anabranch.cli.watermark import duration, told_status
from anabranch.errors import InvalidArgument, StreamNotFound

if TYPE_CHECKING:
    from anabranch.readers.group.group import ReaderGroup
    from anabranch.readers.place import Place
    from anabranch.store import Store

app = new_app("Reader groups: how far they are, and who reads which segments.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The reader group, as scope/name.")]


@app.command("list")
def list_groups(
    scope: Annotated[str | None, typer.Argument(metavar="[SCOPE]", help="Only those of one scope.")] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """List the reader groups by name, and how many events each has still to read.

    Examples:

      anabranch group list
      anabranch group list iot --json | jq -r '.[].name'
    """
    with open_store(store) as opened:
        rows = [_row(opened.reader_group(name)) for name in opened.reader_groups(scope)]
    if as_json:
        print_json(rows)
        return
    print_columns(
        ("GROUP", "READERS", "SEGMENTS", "UNREAD", "BYTES", "STREAMS"),
        [
            (
                row["name"],
                len(row["readers"]),
                row["segments"],
                row["unread"],
                None if row["unread_bytes"] is None else size_text(row["unread_bytes"]),
                ", ".join(row["streams"]) or "(deleted)",
            )
            for row in rows
        ],
    )


@app.command()
def show(name: GroupArgument, as_json: JsonOption = False, store: StoreOption = None) -> None:
    """Show a reader group: its readers, who reads which segments, how far each is behind, and its checkpoints.

    Examples:

      anabranch group show iot/dash
      anabranch group show iot/dash --json | jq .unread
    """
    with open_store(store) as opened:
        told = _details(opened, opened.reader_group(name))
    print_json(told) if as_json else _print_details(told)


@app.command()
def reset(
    name: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="PLACE", help="A checkpoint's name, start, head, tail, or a time, or as -2h before now."
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Let a reader group go on from somewhere else. Its readers are sent away, and are to be opened again.

    Examples:

      anabranch group reset iot/dash --to c1
      anabranch group reset iot/dash --to start      # where it began: a rewind
      anabranch group reset iot/dash --to -2h
    """
    with open_store(store) as opened:
        group = opened.reader_group(name)
        kept = {checkpoint.name for checkpoint in group.checkpoints}
        readers = group.readers
        if readers:
            confirm(f"Send {counted(len(readers), 'reader')} of group '{name}' away?", yes=yes)
        if to == "start" and to not in kept:
            group.rewind()
        else:
            group.reset(to if to in kept else _place(to, opened))
        told = _summary(group)
    if as_json:
        print_json(told)
    else:
        say(f"reader group '{name}' has {counted(told['unread'], 'event')} to read")


@app.command()
def delete(
    name: GroupArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Delete a reader group. The streams stay as they are; its readers end with an error.

    Example:

      anabranch group delete iot/dash
    """
    with open_store(store) as opened:
        group = opened.reader_group(name)
        confirm(f"Delete reader group '{name}'?", yes=yes)
        group.delete()
    say(f"reader group '{name}' is deleted")


def _place(text: str, store: Store) -> Place:
    from anabranch.cli.places import parse_place

    try:
        return parse_place(text, now=store.runtime.clock.now())
    except InvalidArgument:
        return text  # the group says what it has


def _row(group: ReaderGroup) -> dict[str, Any]:
    """A group in one row; without figures where a stream of it was deleted, so that the others are listed still."""
    try:
        return _summary(group)
    except StreamNotFound:
        figures = dict.fromkeys(("segments", "unread", "unread_bytes"))
        return {"name": group.name, "streams": [], "readers": group.readers, **figures}


def _summary(group: ReaderGroup) -> dict[str, Any]:
    unread, distribution = group.unread(), group.distribution()
    return {
        "name": group.name,
        "streams": group.streams,
        "readers": sorted(distribution.readers),
        "segments": sum(map(len, distribution.readers.values())) + len(distribution.unassigned),
        "unread": unread.events,
        "unread_bytes": unread.bytes,
    }


def _details(store: Store, group: ReaderGroup) -> dict[str, Any]:
    unread, distribution, cuts = group.unread(), group.distribution(), group.cut()
    window = group.time_window()
    statuses = [status for name in cuts if (status := store.watermark_status(name)).mark is not None]
    names = {cut.stream: name for name, cut in cuts.items()}
    owner = {segment: name for name, segments in distribution.readers.items() for segment in segments}
    behind = unread.segments
    segments = sorted({*owner, *distribution.unassigned, *behind})
    return {
        **_summary(group),
        "cuts": {name: str(cut) for name, cut in cuts.items()},
        "time_window": {"lower": iso_time(window.lower_us), "upper": iso_time(window.upper_us)},
        "watermarks": [told_status(status) for status in statuses],
        "distribution": [
            {
                "stream": names[each.stream],
                "segment": str(each.segment),
                "reader": owner.get(each),
                "offset": cuts[names[each.stream]].as_dict().get(each.segment),
                "unread": behind.get(each, (0, 0))[0],
                "unread_bytes": behind.get(each, (0, 0))[1],
            }
            for each in segments
        ],
        "checkpoints": [
            {
                "name": checkpoint.name,
                "begun_at": iso_time(checkpoint.at),
                "cuts": {name: str(checkpoint.cut(cut.stream)) for name, cut in cuts.items()},
            }
            for checkpoint in group.checkpoints
        ],
    }


def _print_details(told: dict[str, Any]) -> None:
    print(strong(told["name"]))
    print(f"  streams  {', '.join(told['streams'])}")
    print(f"  readers  {', '.join(told['readers']) or '-'}")
    print(f"  unread   {counted(told['unread'], 'event')}, {size_text(told['unread_bytes'])}")
    if any(told["time_window"].values()):
        print(f"  times    {told['time_window']['lower'] or '-'} to {told['time_window']['upper'] or '-'}")
    print()
    print_columns(
        ("STREAM", "SEGMENT", "READER", "OFFSET", "UNREAD", "BYTES"),
        [
            (d["stream"], d["segment"], d["reader"], d["offset"], d["unread"], size_text(d["unread_bytes"]))
            for d in told["distribution"]
        ],
        indent="  ",
    )
    if told["watermarks"]:
        print()
        rows = [(w["name"], w["time"], duration(w["lag_s"]), duration(w["still_s"])) for w in told["watermarks"]]
        print_columns(("STREAM", "WATERMARK", "BEHIND", "STILL FOR"), rows, indent="  ")
    if told["checkpoints"]:
        print()
        print_columns(("CHECKPOINT", "BEGUN"), [(c["name"], c["begun_at"]) for c in told["checkpoints"]], indent="  ")
