"""Streams as a sink of Spark: `df.write` and `df.writeStream` with `format("anabranch")`.

Tasks stage what they write, which makes it durable and visible to nobody, and the driver publishes it all as one atomic
unit. A streaming batch is published as the number `<batch id>` of the series `spark:<query id>`: repeated after a crash,
however much later, it changes nothing. A batch job gets a fresh request for each save. In complete mode, and with
`mode("overwrite")`, the stream afterwards holds exactly what was written.

Columns are matched by name: missing ones become null, unknown ones are refused, values are cast where nothing is lost.
`_segment`, `_offset` and `_appended` are left out, since the store gives each event its own. A raw stream takes `key`,
`time` and `payload`. Spark itself refuses update mode, and `df.write` without a mode.

What is staged is protected by a lease that the driver enters before the first task begins, tasks renew, and the driver
leaves when it has published or given up. Behind a crash it runs out, after `limits.JOB_LEASE_US` at the latest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch import limits
from anabranch.catalog.port import Lease
from anabranch.core.byte_stream import refuse_rows
from anabranch.core.rows import conform
from anabranch.errors import InvalidArgument, StreamNotFound, StreamSealed
from anabranch.log.lease import Hold
from anabranch.model.columns import RESERVED
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.spark.checkpoint_place import checkpoint_place
from anabranch.spark.offsets import series_of
from anabranch.spark.options import WriteOptions
from anabranch.spark.stores import open_store
from anabranch.spark.types import stored_columns
from anabranch.store import Store
from anabranch.streams.publish import Numbered, Publication
from anabranch.streams.stage import Staged

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """For `df.write`. Raises InvalidArgument and its kinds, StoreNotFound, StreamNotFound, StreamSealed."""
    return BatchWriter(WriteOptions.of(options), schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
    """For `df.writeStream`. Raises as `batch_writer`."""
    return StreamWriter(WriteOptions.of(options), schema, overwrite)


class Written(WriterCommitMessage):
    """What a task staged, under which lease, and for which batch of which query."""

    def __init__(self, staged: tuple[Staged, ...], lease: Lease, query: str | None, batch: int | None) -> None:
        self.staged = staged
        self.lease = lease
        self.query = query
        self.batch = batch


_Messages = Sequence[WriterCommitMessage | None]


class _Sink:
    """What both writers share. Made and used on the driver; its copies stage in tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._stream = _target(self._store(), options, stored_columns(schema))
        self._lease: Lease | None = None

    def _store(self) -> Store:
        return open_store(self._options.store).store

    def _hold(self, lease: Lease) -> Hold:
        store = self._store()
        return Hold.resumed(store.catalog, store.runtime, lease)

    def _enter(self) -> None:
        if self._lease is None:
            # Nothing of ours runs before the job's last stage, where tasks begin to renew it.
            hold = self._store().hold("spark", str(self._options.stream), first_us=limits.JOB_LEASE_US)
            self._lease = hold.__enter__().lease

    def _leave(self, messages: _Messages) -> None:
        leases = {each.lease.id: each.lease for each in messages if isinstance(each, Written)}
        for lease in leases.values():
            self._hold(lease).__exit__(None, None, None)

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Written:
        assert self._lease is not None, "a writer enters its lease before it goes to tasks"
        hold = self._hold(self._lease)
        stager = self._store().stager(self._stream)
        for batch in batches:
            stager.write(_own(batch))
            hold.renew()
        context = TaskContext.get()
        query = batch_id = None
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId")
            batch_id = context.getLocalProperty("streaming.sql.batchId")
        return Written(stager.finish(), hold.lease, query, None if batch_id is None else int(batch_id))

    def _publications(self, messages: _Messages) -> list[Publication]:
        # In the order of the partitions, so that rows which Spark ordered stay so.
        staged = tuple(staged for each in messages if isinstance(each, Written) for staged in each.staged)
        return [Publication(self._stream, staged, replace=self._overwrite)] if staged or self._overwrite else []


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Writes one DataFrame as one atomic unit. Spark commits with a copy of the very writer that went to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.late is not None:
            raise InvalidArgument("option 'late' means nothing where no stream is read")
        self._request = f"spark:{token(self._store().runtime.ids)}"
        self._enter()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage a partition."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish. Raises as `Store.publish`."""
        self._store().publish(self._publications(messages), request=self._request)
        self._leave(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was staged was never visible; the collector removes it."""
        self._leave(messages)


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query. Spark makes a writer for the tasks of each batch, and another one to
    commit it."""

    def __getstate__(self) -> dict[str, Any]:
        # Only a writer for tasks is ever pickled, and before the first of them begins: the time to enter the lease.
        self._enter()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage a partition."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the batch with its late events, unless it was published before. Raises as `Store.publish`."""
        query = self._query(messages, batchId)
        publications = [*self._publications(messages), *self._late_events(messages, batchId)]
        if publications:
            self._store().publish(publications, request=Numbered(series_of(query), batchId))
        self._leave(messages)

    def _late_events(self, messages: _Messages, batch: int) -> list[Publication]:
        if self._options.late is None:
            return []
        # Imported only here because it brings the parser of pipelines with it.
        from anabranch.spark.late_commit import LateAccount, batch_read, late_publication

        account = LateAccount.from_option(self._options.late)
        if self._options.checkpoint is None:
            raise InvalidArgument("option 'late' needs option 'checkpointLocation' beside it")
        read = batch_read(checkpoint_place(self._options.checkpoint, self._store().runtime), batch)
        leases = [each.lease for each in messages if isinstance(each, Written)]
        assert leases, "Spark writes at least one partition"
        found = late_publication(open_store(self._options.store), account, read, self._hold(leases[0]))
        return [] if found is None else [found]

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was staged was never visible; the collector removes it."""
        del batchId
        self._leave(messages)

    def _query(self, messages: _Messages, batch: int) -> str:
        """Spark's id of the query, the same in all its runs: as the tasks were told, else as the checkpoint says."""
        told = {(each.query, each.batch) for each in messages if isinstance(each, Written)}
        told.discard((None, None))
        if self._options.query_id is not None:
            return self._options.query_id
        if len(told) > 1 or any(number != batch for _, number in told):
            raise InvalidArgument(f"Spark committed batch {batch} with the output of others: {sorted(map(str, told))}")
        for query, _ in told:
            if query is not None:
                return query
        return _query_of(self._options.checkpoint, self._store().runtime)


def _query_of(checkpoint: str | None, runtime: Runtime) -> str:
    if checkpoint is not None:
        try:
            return str(json.loads(checkpoint_place(checkpoint, runtime).read("metadata") or "")["id"])
        except (InvalidArgument, OSError, ValueError, KeyError):
            pass
    raise InvalidArgument(
        "the query's id is unknown, without which a repeated batch can't be told: "
        "give .option('checkpointLocation', …) or .option('queryId', …)"
    )


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without the columns that the store adds by itself."""
    added = [name for name in RESERVED if name in batch.schema.names]
    return batch.drop_columns(added) if added else batch


def _target(store: Store, options: WriteOptions, columns: pa.Schema) -> StreamId:
    """The stream to write to, made if it shall be. Raises StreamNotFound, StreamSealed, SchemaMismatch, InvalidArgument for a
    stream of bytes."""
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
    refuse_rows(info)
    conform(columns.empty_table(), info.schema)
    return info.id


def _create(store: Store, name: StreamName, options: WriteOptions, columns: pa.Schema) -> None:
    store.streams.create_scope(name.scope, exist_ok=True)
    store.streams.create(
        name, schema=columns, key=options.key, time=options.time, scaling=options.segments, exist_ok=True
    )
