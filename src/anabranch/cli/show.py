"""What `stream list` and `stream show` print of a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from anabranch.cli.autoscale import policy_json, scaling_text
from anabranch.cli.limit import load_text
from anabranch.cli.options import store_path
from anabranch.cli.output import iso_time, print_columns, print_result, put_line
from anabranch.cli.retain import policy_text
from anabranch.core.cuts import head_cut, tail_cut
from anabranch.core.list_filter import ListFilter
from anabranch.errors import StreamNotFound
from anabranch.model.amounts import size_text
from anabranch.model.ids import StreamId
from anabranch.model.load_policy import load_policy_from_json, load_policy_to_json
from anabranch.model.policy import rate_from_json
from anabranch.model.stream import Segment, StreamView
from anabranch.remote.address import is_broker
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.retention.policy import Retention

if TYPE_CHECKING:
    from anabranch.store.catalog_store import CatalogStore
    from anabranch.streams.ephemeral.api import Ephemeral


def summary(view: StreamView) -> dict[str, Any]:
    """Returns a stream as one row."""
    info = view.info
    return {
        "name": str(info.name),
        "id": f"{info.id:016x}",
        "kind": "raw" if info.schema.raw else "typed",
        "key": info.schema.key,
        "time": info.schema.time,
        "segments_open": len(view.current),
        "events": view.events,
        "epoch": info.epoch,
        "sealed": info.sealed,
        "tags": dict(info.tags),
        "created_at": iso_time(info.created_at),
    }


def print_change(view: StreamView, as_json: bool, text: str, **more: object) -> None:
    """Print what became of a stream: `text`, or as JSON its row and `more`."""
    print_result(as_json, {**summary(view), **more}, text)


def summaries(
    names: CatalogStore,
    scope: str | None,
    *,
    internal: bool,
    tag: Sequence[str] | None = None,
    pattern: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the streams by name, of one scope or of all. A broker is asked twice for each. Raises ScopeNotFound."""
    aliases = defaultdict(list)
    for alias, stream in names.aliases.of().items():
        aliases[str(stream)].append(str(alias))
    views: list[StreamView] = []
    ephemeral: set[StreamId] = set()
    if is_broker(store_path()):
        for info in names.streams.list(scope, tag=tag, pattern=pattern, internal=internal):
            with suppress(StreamNotFound):  # deleted meanwhile
                held = names.ephemeral.is_ephemeral(info.id)
                views.append(names.streams.view(info.id))
                ephemeral |= {info.id} if held else set()
    else:  # `names.streams` would load Arrow
        selected = ListFilter(tag=tag, pattern=pattern)
        with names.catalog.reading() as reading:
            if scope is not None:
                need_scope(reading, scope)
            found = [info for info in reading.streams(scope) if internal or not info.name.internal]
            shown = [reading.view(info.id) for info in found if selected(str(info.name), info.tags)]
            views = [view for view in shown if view is not None]
            ephemeral |= ephemeral_among(reading, [view.info.id for view in views])
    return [
        summary(view) | {"ephemeral": view.info.id in ephemeral, "aliases": aliases[str(view.info.name)]}
        for view in views
    ]


def print_summaries(rows: list[dict[str, Any]]) -> None:
    """Prints streams as columns."""
    header = ("STREAM", "EVENTS", "SEGMENTS", "KEY", "TIME", "STATE", "TAGS", "ALIASES")
    shown = len(header) if any(row["aliases"] for row in rows) else -1
    print_columns(
        header[:shown],
        [
            (
                row["name"],
                row["events"],
                row["segments_open"],
                row["key"],
                row["time"],
                ("sealed" if row["sealed"] else "open") + ", ephemeral" * row["ephemeral"],
                " ".join(f"{k}={v}" for k, v in row["tags"].items()),
                " ".join(row["aliases"]),
            )[:shown]
            for row in rows
        ],
    )


def details(names: CatalogStore, stream: str) -> dict[str, Any]:
    """Returns all details of a stream. `bytes` are logical: the size of its events when they were appended. Raises
    StreamNotFound."""
    view = names.streams.view(stream)
    ident = view.info.id
    sizes = {part.segment: part.bytes for part in names.cuts.between(ident).ranges}
    policies = names.policies
    retention, load = policies.retention(ident), policies.load(ident)
    return {
        **summary(view),
        "bytes": sum(sizes.values()),
        "head": str(head_cut(view)),
        "tail": str(tail_cut(view)),
        "schema_version": view.info.schema_version,
        "columns": [{"name": field.name, "type": str(field.type)} for field in view.info.schema.columns],
        "checks": {each.name: each.condition for each in view.info.schema.checks},
        "epochs": _epochs(view),
        "segments": [_segment(view, segment, sizes.get(segment.id, 0)) for segment in view.ordered],
        "aliases": [str(alias) for alias in names.aliases.of(ident)],
        "holders": _holders(names.ephemeral, ident),
        "retention": None if retention is None else retention.to_json(),
        "scaling": policy_json(policies.scaling(ident)),
        "load": None if load is None else load_policy_to_json(load),
    }


def _holders(ephemeral: Ephemeral, stream: StreamId) -> list[dict[str, Any]] | None:
    """The holders of a stream; None for a permanent one."""
    if not ephemeral.is_ephemeral(stream):
        return None
    return [
        {"process": each.process, "since": iso_time(each.since), "until": iso_time(each.until)}
        for each in ephemeral.holders(stream)
    ]


def print_details(shown_stream: dict[str, Any]) -> None:
    """Prints the details of a stream."""
    put_line(shown_stream["name"], bold=True)
    fields = {
        "id": shown_stream["id"],
        "created": shown_stream["created_at"],
        "state": "sealed" if shown_stream["sealed"] else "open",
        "events": f"{shown_stream['events']:,}",
        "bytes": size_text(shown_stream["bytes"]),
        "epoch": shown_stream["epoch"],
        "tags": " ".join(f"{k}={v}" for k, v in shown_stream["tags"].items()) or "-",
        "aliases": " ".join(shown_stream["aliases"]) or "-",
        "scaled": scaling_text(shown_stream["scaling"] and rate_from_json(shown_stream["scaling"])).removeprefix(
            "scaled "
        ),
        "kept": policy_text(shown_stream["retention"] and Retention.from_json(shown_stream["retention"])).removeprefix(
            "kept "
        ),
        "load": load_text(shown_stream["load"] and load_policy_from_json(shown_stream["load"])),
        "head": shown_stream["head"],
        "tail": shown_stream["tail"],
    }
    for name, value in fields.items():
        put_line(f"  {name:<8} {value}")
    put_line()
    if shown_stream["holders"] is not None:
        put_line("  ephemeral: deleted when nobody holds it any more")
        rows = [(each["process"], each["since"], each["until"]) for each in shown_stream["holders"]]
        print_columns(("HELD BY", "SINCE", "EXPIRES"), rows, indent="  ")
        put_line()
    roles = {shown_stream["key"]: "key", shown_stream["time"]: "time"}
    print_columns(
        ("COLUMN", "TYPE", "ROLE"),
        [(c["name"], c["type"], roles.get(c["name"])) for c in shown_stream["columns"]],
        indent="  ",
    )
    put_line()
    if shown_stream["checks"]:
        print_columns(("CHECK", "CONDITION"), list(shown_stream["checks"].items()), indent="  ")
        put_line()
    print_columns(
        ("SEGMENT", "KEYS FROM", "KEYS TO", "EPOCHS", "STATE", "HEAD", "TAIL", "EVENTS", "BYTES"),
        [
            (
                s["segment"],
                s["low"],
                s["high"],
                f"{s['created']}–{'' if s['retired'] is None else s['retired'] - 1}",
                s["state"],
                s["head"],
                s["tail"],
                s["events"],
                size_text(s["bytes"]),
            )
            for s in shown_stream["segments"]
        ],
        indent="  ",
    )


def _segment(view: StreamView, segment: Segment, size: int) -> dict[str, Any]:
    retired = segment.retired is not None
    return {
        "segment": str(segment.id),
        "low": f"{segment.range.low:016x}",
        "high": f"{segment.range.high:016x}",
        "created": segment.created,
        "retired": segment.retired,
        "state": "retired" if retired else "sealed" if view.info.sealed else "open",
        "head": segment.head,
        "tail": view.length(segment.id),
        "events": view.length(segment.id) - segment.head,
        "bytes": size,
    }


def _epochs(view: StreamView) -> list[dict[str, Any]]:
    first = min((segment.created for segment in view.ordered), default=0)
    return [
        {"epoch": epoch, "segments": [str(segment.id) for segment in view.at_epoch(epoch)]}
        for epoch in range(first, view.info.epoch + 1)
        if view.at_epoch(epoch)
    ]
