"""Streams as a Spark sink: `df.write` and `df.writeStream` with `format("anabranch")`.

Tasks stage what they write: it is durable, but not yet visible. The driver then publishes everything as one atomic
unit. A streaming batch is published as number `<batch id>` of the series `spark:<query id>`, so repeating it after a
crash, however much later, changes nothing. A batch job uses a new request id for each save. In complete mode, and with
`mode("overwrite")`, the stream afterwards holds exactly what was written.

Columns are matched by name: missing ones become null, unknown ones are refused, values are cast if nothing is lost.
`_segment`, `_offset` and `_appended` are dropped, because the store assigns them to each event. A raw stream takes
`key`, `time` and `payload`. Spark itself refuses update mode, and `df.write` without a mode.

How tasks stage depends on whether they can open the store or go through a broker: see `anabranch.spark.staging`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import InvalidArgument, StreamNotFound, StreamSealed
from anabranch.model.columns import RESERVED
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_folder import checkpoint_folder
from anabranch.spark.options import WriteOptions, from_json_option
from anabranch.spark.pipelines.record import refuse_lost
from anabranch.spark.pipelines.side_outputs import OUTPUTS_COLUMN
from anabranch.spark.source.offsets import series_of
from anabranch.spark.staging import BrokerStaging, JobStaging, OwnStaging, StagedPartition
from anabranch.spark.stores import BrokerAccess, chosen_places, open_store
from anabranch.spark.types import stored_columns
from anabranch.spark.worker_access import WorkerAccess
from anabranch.store import Store
from anabranch.store.engine_api import NumberedUnit, Publication

__all__ = ["BatchWriter", "StreamWriter"]


class WrittenBatch(WriterCommitMessage):
    """A task's commit message: what it staged, and for which batch of which query."""

    def __init__(self, staged: StagedPartition, query: str | None, batch: int | None) -> None:
        self.staged = staged
        self.query = query
        self.batch = batch


_Messages = Sequence[WriterCommitMessage | None]


class _Sink:
    """The common part of both writers. Created and used on the driver; pickled copies of it stage events in tasks. Raises
    InvalidArgument and its subclasses, StoreNotFound, StreamNotFound, StreamSealed."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        asked = WriteOptions.of(options)
        self._options = asked = replace(asked, store=chosen_places(asked.store))
        self._overwrite = overwrite
        self._access = WorkerAccess(asked.store)
        columns = [field for field in schema if not asked.outputs or field.name != OUTPUTS_COLUMN]
        stream = _target(self._store(), asked, stored_columns(StructType(columns)))
        self._staging: JobStaging = (
            BrokerStaging(asked.store, stream)
            if isinstance(asked.store, BrokerAccess)
            else OwnStaging(asked.store, stream, str(asked.stream), asked.outputs)
        )

    def _store(self) -> Store:
        return open_store(self._options.store)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> WrittenBatch:
        context = TaskContext.get()
        query = batch_id = None
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch_id = context.getLocalProperty("streaming.sql.batchId")
        with self._access.explained():
            staged = self._staging.stage(map(_without_reserved, batches))
        return WrittenBatch(staged, query, None if batch_id is None else int(batch_id))

    def _leave(self, messages: _Messages) -> None:
        self._staging.leave(_partitions(messages))

    def _publish_batch(self, messages: _Messages, batch: int) -> None:
        """Publish a micro-batch with its late events, unless it is already published."""
        query = self._query(messages, batch)
        unit, late = NumberedUnit(series_of(query), batch), self._late_events(messages, batch)
        run = self._options.pipeline_run
        guard = None if run is None else partial(refuse_lost, *run)
        self._staging.publish(_partitions(messages), unit, replace=self._overwrite, others=late, guard=guard)
        self._leave(messages)

    def _late_events(self, messages: _Messages, batch: int) -> list[Publication]:
        if self._options.late is None:
            return []
        # Imported only here because it also loads the parser of pipelines.
        from anabranch.spark.pipelines.late_commit import LateEventsSpec, batch_read, late_publication

        spec = from_json_option(LateEventsSpec, "late", self._options.late)
        if self._options.checkpoint is None:
            raise InvalidArgument("option 'late' needs option 'checkpointLocation' too")
        read = batch_read(checkpoint_folder(self._options.checkpoint, self._store().runtime), batch)
        leases = [each.lease for each in _partitions(messages) if each.lease is not None]
        assert leases, "Spark writes at least one partition"
        assert isinstance(self._staging, OwnStaging), "with a broker the option is refused"
        found = late_publication(self._store(), spec, read, self._staging.hold(leases[0]))
        return [] if found is None else [found]

    def _query(self, messages: _Messages, batch: int) -> str:
        """Spark's id of the query, the same in all its runs: from option `queryId`, the tasks or the checkpoint."""
        commits = {(each.query, each.batch) for each in messages if isinstance(each, WrittenBatch)}
        commits.discard((None, None))
        if self._options.query_id is not None:
            return self._options.query_id
        if len(commits) > 1 or any(number != batch for _, number in commits):
            raise InvalidArgument(
                f"Spark committed batch {batch} with the output of others: {sorted(map(str, commits))}"
            )
        for query, _ in commits:
            if query is not None:
                return query
        return _query_of(self._options.checkpoint, self._store().runtime)


def _partitions(messages: _Messages) -> list[StagedPartition]:
    """What the tasks staged, in partition order, to preserve the order of rows that Spark has sorted."""
    return [each.staged for each in messages if isinstance(each, WrittenBatch)]


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Writes one DataFrame as one atomic unit: with the option `batch` as that batch of a streaming query, which made it.
    Spark commits with a copy of the writer that it sent to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if self._options.late is not None and self._options.batch is None:
            raise InvalidArgument("option 'late' needs a query that reads a stream")
        self._request = f"spark:{token(self._store().runtime.ids)}"
        self._staging.enter()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:
        """In a task: stage a partition."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged. Raises as `Store.publish`."""
        if self._options.batch is not None:
            self._publish_batch(messages, self._options.batch)
            return
        self._staging.publish(_partitions(messages), self._request, replace=self._overwrite)
        self._leave(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up what was staged, which was never visible."""
        self._leave(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query. Spark creates one writer for the tasks of each batch, and another one to
    commit it."""

    def __getstate__(self) -> dict[str, Any]:
        # Only the writer for tasks is pickled, before the first task begins: this is when to enter the lease.
        self._staging.enter()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:
        """In a task: stage a partition."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch with its late events, unless it is already published. Raises as `Store.publish`."""
        self._publish_batch(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give up what was staged, which was never visible. If all tasks have failed, their lease is not known here: it
        expires within `limits.JOB_LEASE_US`."""
        del batchId
        self._leave(messages)


def _query_of(checkpoint: str | None, runtime: Runtime) -> str:
    if checkpoint is not None:
        try:
            return str(json.loads(checkpoint_folder(checkpoint, runtime).read("metadata") or "")["id"])
        except (InvalidArgument, OSError, ValueError, KeyError):
            pass
    raise InvalidArgument(
        "the query's id is unknown, without which a repeated batch can't be recognized: "
        "give .option('checkpointLocation', …) or .option('queryId', …)"
    )


def _without_reserved(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without the columns that the store itself adds."""
    added = [name for name in RESERVED if name in batch.schema.names]
    return batch.drop_columns(added) if added else batch


def _target(store: Store, options: WriteOptions, columns: pa.Schema) -> StreamId:
    """The stream to write to, created if option `create` says so. Raises StreamNotFound, StreamSealed, SchemaMismatch,
    InvalidArgument for a byte stream."""
    columns = pa.schema([field for field in columns if field.name not in RESERVED])
    name = options.stream
    if options.stream_id is None and store.streams.find(name) is None:
        if not options.create:
            missing = StreamNotFound(str(name))
            missing.add_note("Create it first, or give .option('create', 'true') to have it made.")
            raise missing
        _create(store, name, options, columns)
    info = store.streams.get(options.stream_id or name)
    if info.sealed:
        raise StreamSealed(str(name))
    reject_byte_stream(info)
    to_stored_table(columns.empty_table(), info.schema)
    return info.id


def _create(store: Store, name: StreamName, options: WriteOptions, columns: pa.Schema) -> None:
    store.scopes.create(name.scope, exist_ok=True)
    store.streams.create(
        name, schema=columns, key=options.key, time=options.time, scaling=options.segments, exist_ok=True
    )
