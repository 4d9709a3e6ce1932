"""`SELECT … INTO`: writes the result of a statement as points. The answer comes once all of them are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from anabranch.errors import InvalidSql, NotFound, StreamExists
from anabranch.model.stream import StreamInfo
from anabranch.query.influxql.prepare import PreparedSelect, prepared
from anabranch.query.influxql.select import select
from anabranch.query.influxql.statement_text import POLICY
from anabranch.query.influxql.statements import Rows
from anabranch.query.influxql.syntax import Fill, FunctionCall, IntoTarget, Reference, Select
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.line_protocol import FieldValue, InfluxPoint
from anabranch.server.http.influx.points import PointTable
from anabranch.server.http.influx.write import add_columns, create_stream
from anabranch.server.http.measurements import ReadableStreams

_NANOSECONDS: Final = 1


def select_into(
    call: HttpCall, statement: Select, streams: ReadableStreams, default: str, now: int, forget: Callable[[str], object]
) -> Iterator[Rows]:
    """Write the result of the statement, and return how many points it has. The tags of GROUP BY, and those that `top` and
    `bottom` take, are tags; all else are fields. `forget` gets the names of streams to which columns were added. Raises InvalidSql."""
    target = statement.into
    assert target is not None, "the statement has it"
    if target.policy not in (None, POLICY):
        raise InvalidSql(f"retention policy not found: {target.database or default}.{target.policy}")
    streams.check_database(target.database or default)
    if target.name is not None:  # whether the result has points or not
        _authorize(call, f"{target.database or default}/{target.name}")
    if statement.fill.kind == "null":
        statement = replace(statement, fill=Fill("none"))
    source = prepared(replace(statement, into=None), streams, default)
    count = 0
    for name, points in _by_target(select(statement, streams, default, now), source, target, default).items():
        count += len(points)
        _write(call, name, points, now, forget)
    yield Rows("result", None, ["time", "written"], [[0, count]])


def _by_target(
    series: Iterable[Rows], source: PreparedSelect, target: IntoTarget, default: str
) -> dict[str, list[InfluxPoint]]:
    tags, found = _tag_columns(source), dict[str, list[InfluxPoint]]()
    for rows in series:
        name = f"{target.database or default}/{target.name or rows.name}"
        kept = found.setdefault(name, [])
        columns = list(rows.columns)[1:]
        held = [list(row) for row in rows.values]
        as_float = {
            column
            for place, column in enumerate(columns, 1)
            if source.fields.get(column) == "float" or any(isinstance(row[place], float) for row in held)
        }
        for at, *values in held:
            named = dict(zip(columns, values, strict=True))
            own = {tag: str(named.pop(tag)) for tag in tags if named.get(tag) is not None}
            fields = {
                column: _value(value, as_float=column in as_float)
                for column, value in named.items()
                if value is not None and column not in tags
            }
            if fields:
                present = {tag: value for tag, value in (rows.tags or {}).items() if value}
                kept.append(InfluxPoint(name, {**present, **own}, fields, at, ""))
    return {name: points for name, points in found.items() if points}


def _tag_columns(source: PreparedSelect) -> set[str]:
    """The columns that `top` and `bottom` show of the tags that they take."""
    calls = (field.expression for field in source.select.fields)
    return {
        argument.name
        for call in calls
        if isinstance(call, FunctionCall) and call.name in ("top", "bottom")
        for argument in call.arguments[1:-1]
        if isinstance(argument, Reference)
    }


def _value(value: Any, *, as_float: bool) -> FieldValue:
    found: FieldValue = float(value) if as_float and not isinstance(value, bool | str) else value
    return found


def _write(call: HttpCall, name: str, points: list[InfluxPoint], now: int, forget: Callable[[str], object]) -> None:
    front = call.front
    info = _stream(call, name, points)
    table = PointTable(info, points, _NANOSECONDS, now // 1_000)
    if table.new:
        add_columns(call, info, table.new)
        forget(name)
        info = front.store.streams.get(name)
        table = PointTable(info, points, _NANOSECONDS, now // 1_000)
    if table.problems:
        raise InvalidSql(f"{table.problems[0]}; nothing was written")
    batch, _ = front.broker.loads.thin(info.id, table.batch())
    with front.store.writer(name) as writer:
        writer.write_batch(batch)


def _authorize(call: HttpCall, name: str) -> StreamInfo | None:
    """The stream of a name or an alias, which the caller has to be allowed to write into; None if there is none."""
    try:
        info = call.front.store.streams.get(name)
    except NotFound:
        call.front.guard.authorize(call.principal, "write", name, verb="write")
        return None
    call.front.guard.authorize(call.principal, "write", str(info.name), verb="write")
    return info


def _stream(call: HttpCall, name: str, points: list[InfluxPoint]) -> StreamInfo:
    info = _authorize(call, name)
    if info is None:
        with suppress(StreamExists):  # another request has created it
            create_stream(call, name, points)
        info = call.front.store.streams.get(name)
    return info
