"""Which events of a statement Spark will drop as late, and the stream that keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import InvalidSql
from anabranch.model.columns import APPENDED, TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.spark.pipelines.late_commit import WATERMARK_COLUMN, LateEventsSpec
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.shed_frame import items_of
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.pipelines.windows.spans import StatementWindow
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["late_schema", "late_spec"]


def late_spec(store: Store, step: Step, frame: DataFrame) -> LateEventsSpec | None:
    """A description of the events that Spark will drop as late; None if it drops none or late events are not kept."""
    statement = step.statement
    if not statement.options.late or statement.options.mode == "complete":
        return None
    emit = None if statement.windowed is None else statement.windowed.emit
    # A count window takes events as they come, so no event is late for it.
    windows = _dropping(frame, statement) if emit is None else statement.windows or None
    sources = [store.streams.get(name) for name in statement.sources.values()]
    times = {each.id: APPENDED if statement.by_append_time else each.schema.time for each in sources}
    timed = {stream: time for stream, time in times.items() if time is not None}
    return (
        None
        if windows is None or not timed
        else LateEventsSpec(None, timed, windows, None if emit is None else emit.late_us)
    )


def late_schema(store: Store, statement: Statement, spec: LateEventsSpec) -> StreamSchema:
    """The schema of the stream for late events: the columns of the sources that have late events, then `_watermark`.

    Sources that share a column must agree on its type. Raises InvalidSql.
    """
    fields: dict[str, pa.Field] = {}
    keys, times = set(), set()
    for name in spec.sources:
        schema = store.streams.get(name).schema
        keys.add(schema.key)
        times.add(schema.time)
        for field in schema.columns:
            if fields.setdefault(field.name, field).type != field.type:
                raise InvalidSql(
                    f"the sources' columns '{field.name}' differ in type, so late events of both can't share a stream; "
                    "set late = false",
                    line=statement.line,
                )
    fields[WATERMARK_COLUMN] = pa.field(WATERMARK_COLUMN, TIME_TYPE)
    key, time = (next(iter(each)) if len(each) == 1 else None for each in (keys, times))
    return StreamSchema.typed(pa.schema(list(fields.values())), key, time)


def _dropping(frame: DataFrame, statement: Statement) -> tuple[StatementWindow, ...] | None:
    """The windows whose ends decide which events are dropped; () if the event's own time decides; None if none are.

    Derived from Spark's plan, because a query's text does not say which of its joins are between streams.
    """
    nodes = list(_streaming_nodes(frame._jdf.queryExecution().analyzed()))
    if any(kind == "Join" and of_streams > 1 for kind, of_streams in nodes):
        return ()
    kinds = {kind for kind, _ in nodes}
    if "Aggregate" in kinds:
        return statement.windows
    return () if kinds & {"Distinct", "Deduplicate", "DeduplicateWithinWatermark"} else None


def _streaming_nodes(plan: Any) -> Iterator[tuple[str, int]]:
    """The class names of the plan's streaming nodes, each with the number of its inputs that are streams."""
    below = list(items_of(plan.children()))
    yield str(plan.getClass().getSimpleName()), sum(bool(child.isStreaming()) for child in below)
    for child in below:
        if child.isStreaming():
            yield from _streaming_nodes(child)
