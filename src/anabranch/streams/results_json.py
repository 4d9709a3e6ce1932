"""Results of requests as JSON, as the catalog records them so that a repeated request returns the same result."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW, StreamSchema
from anabranch.model.stream import Scope, Segment, StreamInfo


def scope_to_json(scope: Scope) -> dict[str, object]:
    """A scope as JSON."""
    return {"name": scope.name, "tags": dict(scope.tags), "created_at": scope.created_at}


def scope_from_json(value: Mapping[str, Any]) -> Scope:
    """The inverse of `scope_to_json`."""
    return Scope(value["name"], value["tags"], Micros(value["created_at"]))


def info_to_json(info: StreamInfo) -> dict[str, object]:
    """A stream's description as JSON."""
    schema = info.schema
    columns = None if schema.raw else base64.b64encode(schema.to_bytes()).decode()
    return {
        "id": f"{info.id:016x}",
        "name": str(info.name),
        "schema": {"columns": columns, "key": schema.key, "time": schema.time},
        "schema_version": info.schema_version,
        "tags": dict(info.tags),
        "created_at": info.created_at,
        "sealed": info.sealed,
        "version": info.version,
        "epoch": info.epoch,
        "next_number": info.next_number,
    }


def info_from_json(value: Mapping[str, Any]) -> StreamInfo:
    """The inverse of `info_to_json`."""
    columns, key, time = (value["schema"][each] for each in ("columns", "key", "time"))
    return StreamInfo(
        StreamId(int(value["id"], 16)),
        StreamName.parse(value["name"]),
        RAW if columns is None else StreamSchema.from_bytes(base64.b64decode(columns), key, time, False),
        value["schema_version"],
        value["tags"],
        Micros(value["created_at"]),
        value["sealed"],
        value["version"],
        value["epoch"],
        value["next_number"],
    )


def segments_to_json(segments: Sequence[Segment]) -> list[list[int | None]]:
    """Segments as JSON."""
    return [[each.id.packed, each.range.low, each.range.high, each.retired, each.head] for each in segments]


def segments_from_json(value: Sequence[Sequence[Any]]) -> tuple[Segment, ...]:
    """The inverse of `segments_to_json`."""
    return tuple(
        Segment(SegmentId.unpack(i), KeyRange(low, high), retired, head) for i, low, high, retired, head in value
    )
