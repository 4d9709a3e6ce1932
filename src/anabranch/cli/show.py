"""What `stream list` and `stream show` print of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.catalog.port import Reading
from anabranch.catalog.state.load import LOAD_POLICY
from anabranch.cli.autoscale import scaling_text
from anabranch.cli.hold import holders_json, print_holders
from anabranch.cli.limit import load_text
from anabranch.cli.output import iso_time, print_columns, print_result, put_line
from anabranch.cli.retain import policy_text
from anabranch.core.cuts import head_cut, tail_cut
from anabranch.core.list_filter import ListFilter
from anabranch.log.sizes import segment_bytes
from anabranch.model.amounts import size_text
from anabranch.model.ids import StreamId
from anabranch.model.load_policy import load_policy_from_json, load_policy_to_json
from anabranch.model.policy import rate_from_json, rate_to_json
from anabranch.model.stream import Segment, StreamView
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.names.alias import aliases
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import policy_of
from anabranch.streams.scaling.stored import rate_policy_of


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
    reading: Reading, scope: str | None, *, internal: bool, selected: ListFilter | None = None
) -> list[dict[str, Any]]:
    """Returns the streams by name, of one scope or of all. Raises ScopeNotFound."""
    if scope is not None:
        need_scope(reading, scope)
    selected = selected or ListFilter()
    found = [info for info in reading.streams(scope) if internal or not info.name.internal]
    views = [reading.view(info.id) for info in found if selected(str(info.name), info.tags)]
    held = ephemeral_among(reading, [view.info.id for view in views if view is not None])
    named = _aliases(reading)
    return [
        summary(view) | {"ephemeral": view.info.id in held, "aliases": named.get(view.info.id, [])}
        for view in views
        if view is not None
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


def _aliases(reading: Reading) -> dict[StreamId, list[str]]:
    found: dict[StreamId, list[str]] = {}
    for alias in aliases(reading):
        found.setdefault(alias.stream, []).append(str(alias.name))
    return found


def details(reading: Reading, view: StreamView) -> dict[str, Any]:
    """Returns all details of a stream. `bytes` are logical: the size of its events when they were appended."""
    ident = view.info.id
    policy, rate = policy_of(reading, ident), rate_policy_of(reading, ident)
    load = reading.state(LOAD_POLICY, ident)
    return details_from(
        view,
        lambda segment: segment_bytes(reading, view, segment.id, segment.head, view.length(segment.id)),
        aliases=[str(alias) for alias in reading.aliases_of(ident)],
        holders=holders_json(reading, ident),
        retention=None if policy is None else policy.to_json(),
        scaling=None if rate is None else rate_to_json(rate),
        load=None if load is None else load_policy_to_json(load),
    )


def details_from(view: StreamView, size_of: Callable[[Segment], int], **more: Any) -> dict[str, Any]:
    """The same from values that were read already: `aliases`, `holders`, `retention`, `scaling` and `load`."""
    segments = [_segment(view, segment, size_of(segment)) for segment in view.ordered]
    return {
        **summary(view),
        "bytes": sum(segment["bytes"] for segment in segments),
        "head": str(head_cut(view)),
        "tail": str(tail_cut(view)),
        "schema_version": view.info.schema_version,
        "columns": [{"name": field.name, "type": str(field.type)} for field in view.info.schema.columns],
        "checks": {each.name: each.condition for each in view.info.schema.checks},
        "epochs": _epochs(view),
        "segments": segments,
        **more,
    }


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
        print_holders(shown_stream["holders"])
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
