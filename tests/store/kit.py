"""A catalog and a folder of blobs with streams in them, put together from the ports alone: no facade, no writer.

With ANABRANCH_TEST_CATALOG=postgres the catalog is one on PostgreSQL, so that whatever is built on this kit can be run on
either. (Tests that damage the catalog's own file need SQLite.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pyarrow as pa

from anabranch.blobs.local import LocalBlobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.tables import BY_NAME
from anabranch.core import codec
from anabranch.log.commit import Committer, EncodedCommit, RoutedBatch, RoutedPart, WriterHandle
from anabranch.log.parquet.reader import ParquetReader
from anabranch.model.append import Appended, Commit, Part, Unit
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId, WriterId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, Scope, Segment, Span, StreamInfo, StreamView
from anabranch.runtime.ids import SystemIds
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.testing.clock import ManualClock
from tests import catalog_file
from tests.clocks import runtime_by
from tests.postgres_server import fresh_url

SECOND = 1_000_000
SCHEMA = StreamSchema.typed(
    pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("celsius", pa.float64())]), "device", "at"
)


_urls: dict[Path, str] = {}


def open_catalog(folder: Path, runtime: Runtime) -> Catalog:
    """The catalog that goes with the folder."""
    if not is_postgres():
        return SqliteCatalog(folder, runtime)
    if folder not in _urls:
        _urls[folder] = fresh_url()
    return PostgresCatalog(_urls[folder], runtime)


# What the tests write for SQLite, as PostgreSQL has it.
_POSTGRES = {
    "zeroblob(length(data))": "decode(repeat('00', length(data)), 'hex')",
    "recent = zeroblob(80)": "recent = array_fill(0::bigint, array[10])",
    "recent = zeroblob(63)": "recent = array_fill(0::bigint, array[7])",
    "x'00'": "'\\x00'::bytea",
    "?": "%s",
}


def is_postgres() -> bool:
    """True where stores of this kit have their catalog in PostgreSQL."""
    return os.environ.get("ANABRANCH_TEST_CATALOG") == "postgres"


def change(folder: Path, statement: str, *values: object) -> int:
    """Run a statement with `?` for values behind the back of the catalog that goes with the folder, whatever it would
    refuse to hold; how many rows it changed. The digests of all rows are made anew."""
    if folder not in _urls:
        return catalog_file.change(folder / "catalog.db", statement, *values)
    for ours, theirs in _POSTGRES.items():
        statement = statement.replace(ours, theirs)
    base, _, schema = _urls[folder].rpartition("schema=")
    with psycopg.connect(base.rstrip("?&")) as connection:
        connection.execute(f"set local search_path to {schema}".encode())
        connection.execute("set local session_replication_role to replica")  # checks no foreign key
        changed = connection.execute(statement.encode(), values).rowcount
        for table in BY_NAME:
            made = f"{table}_digest({', '.join(catalog_file.digested_columns(table))})"
            connection.execute(f"update {table} set digest = {made} where digest is distinct from {made}".encode())
        return changed


@dataclass
class Kit:
    """A store without its facade."""

    folder: Path
    inline_bytes_max: int = 0
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.runtime = runtime_by(self.clock, settings=Settings(inline_bytes_max=self.inline_bytes_max))
        self.catalog = open_catalog(self.folder, self.runtime)
        self.blobs = LocalBlobs(self.folder, self.runtime)
        self.committer = Committer(self.catalog, self.blobs, self.runtime)
        self.sequences: dict[tuple[str, LogId], int] = {}
        self.time = 0

    def create(self, name: str, *, segments: int = 1, schema: StreamSchema = SCHEMA) -> StreamId:
        """A stream with so many open segments."""
        stream = StreamId(SystemIds().bits(63))
        full = StreamName.parse(name)
        now = self.clock.now()
        with self.catalog.writing() as txn:
            txn.put_scope(Scope(full.scope, {}, now))
            txn.insert_stream(StreamInfo(stream, full, schema, 1, {}, now, False, 1, 0, segments))
            for number, part in enumerate(FULL_KEY_RANGE.split(segments)):
                segment = SegmentId(0, number)
                txn.put_segment(stream, Segment(segment, part, None, 0))
                log = txn.new_log(stream, appended_at=Micros(0))
                txn.put_span(stream, Span(segment, 0, log, 0, None))
        return stream

    def view(self, stream: StreamId) -> StreamView:
        with self.catalog.reading() as snapshot:
            view = snapshot.view(stream)
        assert view is not None
        return view

    def logs(self, stream: StreamId) -> list[LogId]:
        """The stream's open logs, by segment."""
        view = self.view(stream)
        return [log for segment in view.ordered if (log := view.open_log(segment.id)) is not None]

    def rows(self, count: int, schema: StreamSchema = SCHEMA) -> pa.RecordBatch:
        """So many events whose times count on from call to call."""
        times = list(range(self.time, self.time + count))
        self.time += count
        columns = {
            "device": pa.array([f"device-{i % 7}" for i in times]),
            "at": pa.array(times, TIME_TYPE),
            "celsius": pa.array([i / 10 for i in times]),
        }
        arrays = [columns.get(f.name, pa.nulls(count, f.type)) for f in schema.columns]
        return pa.record_batch(arrays, schema=schema.columns)

    def append(
        self, stream: StreamId, counts: Sequence[int], *, writer: str = "w", rows: pa.RecordBatch | None = None
    ) -> None:
        """One commit: `counts[i]` events (those of `rows`, if given) to the i-th open log, 0 for none."""
        batches = self.batches(stream, counts, writer=writer, rows=rows)
        for outcome in self.committer.commit(self.committer.prepare(batches)):
            assert isinstance(outcome, tuple), outcome
            assert all(isinstance(verdict, Appended) for verdict in outcome), outcome

    def batches(
        self, stream: StreamId, counts: Sequence[int], *, writer: str = "w", rows: pa.RecordBatch | None = None
    ) -> list[RoutedBatch]:
        """What `append` commits."""
        info = self.view(stream).info
        batches = []
        for log, count in zip(self.logs(stream), counts, strict=False):
            if count:
                first = self.sequences.get((writer, log), 0)
                self.sequences[writer, log] = first + count
                batch = rows or self.rows(count, info.schema)
                name = WriterHandle(WriterId(writer))
                part = RoutedPart(log, batch, info.schema, info.schema_version, name, first)
                batches.append(RoutedBatch((part,)))
        return batches

    def as_commit(self, encoded: EncodedCommit) -> Commit:
        """What a committer asks of the catalog, without its second tries."""
        assert encoded.blob is not None
        parts = [
            Part(
                log=part.log,
                count=part.batch.num_rows,
                schema=part.schema_version,
                location=encoded.locations[i],
                checksum=encoded.checksums[i],
                size=part.batch.nbytes,
                bounds=encoded.bounds[i],
                blob=encoded.blob.key,
            )
            for i, part in enumerate(part for routed in encoded.batches for part in routed.parts)
        ]
        return Commit((Unit(tuple(parts)),), self.clock.now(), (encoded.blob,))

    def extents(self, log: LogId) -> list[Extent]:
        with self.catalog.reading() as snapshot:
            return snapshot.extents(log, 0, 1 << 60, 100_000)

    def all_extents(self, stream: StreamId) -> list[Extent]:
        return [extent for log in self.logs(stream) for extent in self.extents(log)]

    def read(self, log: LogId, columns: pa.Schema = SCHEMA.columns) -> pa.Table:
        """All rows of a log with their append times, straight from extents and blobs."""
        return pa.Table.from_batches(list(self._batches(log, columns)))

    def _batches(self, log: LogId, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        wide = pa.schema([*columns, ("_appended", TIME_TYPE)])
        for extent in self.extents(log):
            count = extent.stop - extent.start
            if extent.encoding == "parquet":
                assert extent.key is not None
                reader = ParquetReader(extent.key, self.blobs.get(extent.key))
                for batch, appended in reader.read(extent.location.row, count, columns):
                    yield pa.record_batch([*batch.columns, appended], schema=wide)
                continue
            with self.catalog.reading() as snapshot:
                own = snapshot.schema(snapshot.logs([log])[log].stream, extent.schema).columns
            if extent.data is not None:
                message = pa.py_buffer(extent.data)
            else:
                assert extent.key is not None
                message = self.blobs.get(extent.key, extent.location.offset, extent.location.length)
            batch = codec.widen(codec.decode(message, own).slice(extent.location.row, count), columns)
            appended = pa.array([extent.appended.low] * count, TIME_TYPE)
            yield pa.record_batch([*batch.columns, appended], schema=wide)

    def drop(self, stream: StreamId) -> None:
        """Delete a stream: its names and spans go, its logs stay."""
        with self.catalog.writing() as txn:
            txn.drop_stream(stream)

    def copy(self, stream: StreamId, name: str) -> StreamId:
        """A sealed copy of the stream as it is: other names, the same logs."""
        view = self.view(stream)
        twin = StreamId(SystemIds().bits(63))
        info = view.info
        full = StreamName.parse(name)
        with self.catalog.writing() as txn:
            txn.insert_stream(replace(info, id=twin, name=full, sealed=True))
            for segment in view.ordered:
                txn.put_segment(twin, segment)
                for span in view.spans[segment.id]:
                    stop = view.logs[span.log].length if span.stop is None else span.stop
                    txn.put_span(twin, Span(segment.id, span.offset, span.log, span.start, stop))
        return twin

    def files(self, prefix: str = "") -> list[str]:
        return [info.key for info in self.blobs.list(prefix) if "/" in info.key]

    def close(self) -> None:
        self.blobs.close()
        self.catalog.close()
