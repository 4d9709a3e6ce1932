"""`anabranch group`: the reader groups of a store, their progress, and their segment assignments."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from anabranch.cli.confirm import YES_OPTION, confirm
from anabranch.cli.declare import argument, new_app, option
from anabranch.cli.options import JSON_OPTION, MATCH_OPTION, open_store
from anabranch.cli.output import counted, iso_time, print_columns, print_json, print_note, print_result, put_line
from anabranch.cli.retain import print_subscribers, subscriber_json
from anabranch.cli.watermark import duration, status_json
from anabranch.errors import GroupNotFound, InvalidArgument, StreamNotFound
from anabranch.model.amounts import size_text

if TYPE_CHECKING:
    from anabranch.groups.group import ReaderGroup
    from anabranch.reading.bounds import Place
    from anabranch.store import Store

app = new_app()

GROUP_ARGUMENT: Final = argument("GROUP", "The reader group, as scope/name.")


@app.command("list")
def list_groups(
    scope: str | None = argument("[SCOPE]", "Only the groups of this scope.", default=None),
    match: str | None = MATCH_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """List the reader groups by name, with the number of events that each has not read yet.

    Examples:

      anabranch group list
      anabranch group list iot --json | jq -r '.[].name'
      anabranch group list --match 'dash-*'
    """
    with open_store() as opened:
        rows = []
        for name in opened.groups.list(scope, pattern=match):
            with suppress(GroupNotFound):  # deleted meanwhile
                rows.append(_row(opened.groups.open(name)))
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
def show(name: str = GROUP_ARGUMENT, as_json: bool = JSON_OPTION) -> None:
    """Show a reader group: its readers, which reader has which segments, each one's lag, and its checkpoints.

    For streams whose retention waits for the group (anabranch stream retain --group) it shows what is kept for the
    group, and how many events retention removed before the group read them, because it lagged beyond the bound.

    Examples:

      anabranch group show iot/dash
      anabranch group show iot/dash --json | jq .unread
    """
    with open_store() as opened:
        fields = _details(opened, opened.groups.open(name))
    print_json(fields) if as_json else _print_details(fields)


@app.command()
def reset(
    name: str = GROUP_ARGUMENT,
    to: str | None = option(
        "--to",
        "PLACE",
        "A checkpoint's name, start, head, tail, a time, or -2h (two hours ago); default: the last checkpoint.",
    ),
    stream: list[str] | None = option(
        "--stream", "STREAM", "Read this stream after the reset; may be given several times."
    ),
    end: str | None = option("--end", "PLACE", "Where reading ends: tail, a cut, a time; 'none' follows forever."),
    yes: bool = YES_OPTION,
    as_json: bool = JSON_OPTION,
) -> None:
    """Let a reader group continue from another position. Its readers are closed and must be opened again.

    Examples:

      anabranch group reset iot/dash --to c1
      anabranch group reset iot/dash --to start      # where it began: a rewind
      anabranch group reset iot/dash --to -2h --yes
      anabranch group reset iot/dash                 # to its last checkpoint, or where it began
      anabranch group reset iot/dash --stream iot/sensors --stream iot/alarms --end none
    """
    with open_store() as opened:
        group = opened.groups.open(name)
        kept = {checkpoint.name for checkpoint in group.checkpoints}
        target = to if to is None or to == "start" or to in kept else _place(to, opened)
        closed = f" and close its {counted(len(group.readers), 'reader')}" if group.readers else ""
        rewinds = to == "start" and to not in kept
        if rewinds and (stream or end is not None):
            raise InvalidArgument(
                "--to start takes neither --stream nor --end: reset the group to head, or a checkpoint"
            )
        confirm(f"Forget the position of group '{name}'{closed}?", yes=yes)
        if rewinds:
            group.rewind()
        elif end is None:
            group.reset(target, streams=stream or None)
        else:
            group.reset(target, streams=stream or None, end=None if end == "none" else _place(end, opened))
        fields = _summary(group)
    print_result(as_json, fields, f"reader group '{name}' has {counted(fields['unread'], 'event')} to read")


@app.command()
def delete(name: str = GROUP_ARGUMENT, yes: bool = YES_OPTION) -> None:
    """Delete a reader group. The streams are not changed; its readers end with an error.

    Example:

      anabranch group delete iot/dash
    """
    with open_store() as opened:
        group = opened.groups.open(name)
        confirm(f"Delete reader group '{name}'?", yes=yes)
        group.delete()
    print_note(f"reader group '{name}' is deleted")


def _place(text: str, store: Store) -> Place:
    from anabranch.cli.stream_places import parse_place

    try:
        return parse_place(text, now=store.runtime.clock.now())
    except InvalidArgument:
        return text  # the group reports the checkpoints it has


def _row(group: ReaderGroup) -> dict[str, Any]:
    """A group as one row; without figures if one of its streams was deleted, so that the other groups are still
    listed."""
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
    statuses = [status for name in cuts if (status := store.watermarks.status(name)).watermark is not None]
    names = {cut.stream: name for name, cut in cuts.items()}
    owner = {segment: name for name, segments in distribution.readers.items() for segment in segments}
    behind = unread.segments
    segments = sorted({*owner, *distribution.unassigned, *behind})
    return {
        **_summary(group),
        "cuts": {name: str(cut) for name, cut in cuts.items()},
        "time_window": {"lower": iso_time(window.lower_us), "upper": iso_time(window.upper_us)},
        "watermarks": [status_json(status) for status in statuses],
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
        "subscriptions": [
            subscriber_json(each) for name in cuts for each in store.subscribers.list(name) if each.group == group.name
        ],
        "checkpoints": [
            {
                "name": checkpoint.name,
                "begun_at": iso_time(checkpoint.started_at),
                "cuts": {
                    name: str(checkpoint.cut(cut.stream))
                    for name, cut in cuts.items()
                    if cut.stream in checkpoint.streams
                },
            }
            for checkpoint in group.checkpoints
        ],
    }


def _print_details(fields: dict[str, Any]) -> None:
    put_line(fields["name"], bold=True)
    put_line(f"  streams  {', '.join(fields['streams'])}")
    put_line(f"  readers  {', '.join(fields['readers']) or '-'}")
    put_line(f"  unread   {counted(fields['unread'], 'event')}, {size_text(fields['unread_bytes'])}")
    if any(fields["time_window"].values()):
        put_line(f"  times    {fields['time_window']['lower'] or '-'} to {fields['time_window']['upper'] or '-'}")
    put_line()
    print_columns(
        ("STREAM", "SEGMENT", "READER", "OFFSET", "UNREAD", "BYTES"),
        [
            (d["stream"], d["segment"], d["reader"], d["offset"], d["unread"], size_text(d["unread_bytes"]))
            for d in fields["distribution"]
        ],
        indent="  ",
    )
    if fields["watermarks"]:
        put_line()
        rows = [(w["name"], w["time"], duration(w["lag_s"]), duration(w["still_s"])) for w in fields["watermarks"]]
        print_columns(("STREAM", "WATERMARK", "BEHIND", "STILL FOR"), rows, indent="  ")
    if fields["subscriptions"]:
        put_line()
        print_subscribers(fields["subscriptions"], "stream")
    if fields["checkpoints"]:
        put_line()
        print_columns(("CHECKPOINT", "BEGUN"), [(c["name"], c["begun_at"]) for c in fields["checkpoints"]], indent="  ")
