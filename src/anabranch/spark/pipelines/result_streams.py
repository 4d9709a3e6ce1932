"""The streams of a statement's results and of its late events: their schemas, and their making."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from anabranch.catalog.state.codec import stream_id_text
from anabranch.errors import InvalidArgument, InvalidSql, NotFound, StreamExists
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.spark.pipelines.late_commit import LateEventsSpec
from anabranch.spark.pipelines.late_spec import late_schema
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.types import stored_columns
from anabranch.store import Store

if TYPE_CHECKING:
    from anabranch.store.engine_api import Held

__all__ = ["check_streams", "create_streams"]

Made: TypeAlias = Collection[str]  # ids of streams, as `stream_id_text` writes them

_WINDOW_END = re.compile(r"\b(?:count_)?window\s*\.\s*end\s+(?:as\s+)?`?(\w+)`?", re.IGNORECASE)


def check_streams(
    store: Store, step: Step, columns: StructType, late: LateEventsSpec | None, row: str, made: Made
) -> None:
    """Check what `create_streams` would check, and create nothing. Raises InvalidSql."""
    with _as_invalid_sql(store, step, row, made):
        for name, schema in _stream_schemas(store, step.statement, columns, late):
            _present(store, name, schema)


def create_streams(
    store: Store,
    step: Step,
    columns: StructType,
    late: LateEventsSpec | None,
    created: list[StreamId],
    row: str,
    made: Made,
    held: list[Held] | None = None,
) -> None:
    """Create the streams of results and, with `late`, the stream for late events, if they are missing. The ids of streams
    that it creates are added to `created`.

    With `held` the stream for late events is ephemeral, and its hold is added to `held`. `row` is the pipeline's name,
    `made` holds the ids of the streams that it created before.

    Raises InvalidSql if a result can't be stored, or differs from the existing stream.
    """
    statement = step.statement
    with _as_invalid_sql(store, step, row, made):
        for name, schema in _stream_schemas(store, statement, columns, late):
            if name in statement.results:
                _create(store, name, schema, statement.options.segments, created)
            elif held is None:
                _create(store, name, schema, None, created)
            else:
                _hold(store, name, schema, held, created)


def _stream_schemas(
    store: Store, statement: Statement, columns: StructType, late: LateEventsSpec | None
) -> Iterator[tuple[StreamName, StreamSchema]]:
    """The streams of the results, then that of late events, with their schemas."""
    schema = _result_schema(store, statement, columns)
    _check_feedback(store, statement, schema)
    for name in statement.results:
        yield name, schema
    if late is not None:
        yield statement.late_target, late_schema(store, statement, late)


@contextmanager
def _as_invalid_sql(store: Store, step: Step, row: str, made: Made) -> Iterator[None]:
    statement = step.statement
    try:
        yield
    except StreamExists as exc:
        present = store.streams.find(exc.stream)
        own = present is not None and stream_id_text(present.id) in made
        what = f"anabranch pipeline reset {row} --drop-results" if own else f"anabranch stream delete {exc.stream}"
        raise InvalidSql(
            f"'{exc.stream}' exists with other columns, key or time than this statement gives; name another target, or if "
            f"{'the earlier results are' if own else 'its content is'} not needed any more, run: {what}",
            line=statement.line,
        ) from exc
    except InvalidArgument as exc:
        raise InvalidSql(f"'{statement.target}': {exc}", line=statement.line) from exc


def _check_feedback(store: Store, statement: Statement, schema: StreamSchema) -> None:
    """Check that the streams of FEEDBACK exist, and have the columns of the result. Raises InvalidSql."""
    for each in statement.feedback:
        try:
            has = store.streams.get(each.target).schema.columns
        except NotFound as exc:
            raise InvalidSql(f"FEEDBACK needs a stream that exists: {exc}", line=each.line) from exc
        for column in schema.columns:
            if column.name not in has.names or has.field(column.name).type != column.type:
                raise InvalidSql(
                    f"the result has a column {column.name} of type {column.type}, which '{each.target}' lacks",
                    line=each.line,
                )


def _hold(store: Store, name: StreamName, schema: StreamSchema, held: list[Held], created: list[StreamId]) -> None:
    if not _present(store, name, schema):
        store.scopes.create(name.scope, exist_ok=True)
        held.append(store.ephemeral.create(name, schema=schema.columns, key=schema.key, time=schema.time))
        created.append(held[-1].id)
    elif store.ephemeral.is_ephemeral(name):  # left by a run that was killed
        held.append(store.ephemeral.hold(name))


def _present(store: Store, name: StreamName, schema: StreamSchema) -> bool:
    """True if the stream exists. Raises StreamExists if it has another schema."""
    present = store.streams.find(name)
    if present is None:
        return False
    if present.schema != schema:
        raise StreamExists(str(name))
    return True


def _create(
    store: Store, name: StreamName, schema: StreamSchema, segments: int | None, created: list[StreamId]
) -> None:
    if not _present(store, name, schema):
        store.scopes.create(name.scope, exist_ok=True)
        info = store.streams.create(
            name, schema=schema.columns, key=schema.key, time=schema.time, scaling=segments or 1
        )
        created.append(info.id)


def _result_schema(store: Store, statement: Statement, schema: StructType) -> StreamSchema:
    """The result stream's schema: Spark's columns; key and time from options, else the existing stream, else inferred.

    If the stream exists and the options name neither key nor time, both come from the stream.
    """
    columns = stored_columns(schema)
    options = statement.options
    present = store.streams.get(statement.target).schema if store.streams.exists(statement.target) else None
    if present is not None and options.key is None and options.time is None:
        return StreamSchema.typed(columns, _key_in_result(present.key, columns), _key_in_result(present.time, columns))
    key = options.key or _default_key(store, statement, columns)
    time = options.time or _default_time(store, statement, schema)
    return StreamSchema.typed(columns, key, time)


def _key_in_result(name: str | None, columns: pa.Schema) -> str | None:
    return name if name in columns.names else None


def _default_key(store: Store, statement: Statement, columns: pa.Schema) -> str | None:
    """The first source's key, if the result has a column of that name and type."""
    schema = store.streams.get(next(iter(statement.sources.values()))).schema
    if schema.key is None or schema.key not in columns.names:
        return None
    return schema.key if columns.field(schema.key).type == schema.columns.field(schema.key).type else None


def _default_time(store: Store, statement: Statement, schema: StructType) -> str | None:
    """The column that holds `window.end`, else a source's time column under its own name, else the only timestamp."""
    times = [field.name for field in schema if isinstance(field.dataType, TimestampType | TimestampNTZType)]
    ends = [name for name in _WINDOW_END.findall(statement.query) if name in times]
    own = [store.streams.get(source).schema.time for source in statement.sources.values()]
    candidates = [*ends, *(name for name in own if name in times), *(times if len(times) == 1 else [])]
    return candidates[0] if candidates else None
