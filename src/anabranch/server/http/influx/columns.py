"""Creates the streams of new measurements, and adds the columns of new tags and fields, where the caller may do so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from anabranch.model.stream import StreamInfo
from anabranch.query.influxql.measurement import TEXT_FIELDS
from anabranch.server.http.calls import run_verb
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.line_protocol import InfluxPoint
from anabranch.server.http.influx.points import NewColumns
from anabranch.wire.values import to_json

_TIME: Final = "time"


def create_stream(call: HttpCall, name: str, points: Iterable[InfluxPoint]) -> None:
    """Create a stream with the columns of the points. Raises StreamExists."""
    columns = NewColumns.of(points)
    arguments: dict[str, Any] = {
        "name": name,
        "schema": to_json(columns.schema(time=_TIME)),
        "time": _TIME,
        "tags": columns.label({}),
        "exist_ok": False,
    }
    run_verb(call, "streams.create", arguments)


def add_columns(call: HttpCall, info: StreamInfo, new: NewColumns) -> None:
    """Add columns. Which of them are text fields is said first, so that they are never seen as tags."""
    label = new.label(info.tags)
    if label.get(TEXT_FIELDS) != info.tags.get(TEXT_FIELDS):
        run_verb(call, "streams.tag", {"name": str(info.name), "tags": label})
    run_verb(call, "streams.add_columns", {"name": str(info.name), "columns": to_json(new.schema())})
