"""Builds tier-2 files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import limits
from anabranch.core.checksum import checksum
from anabranch.core.event_sizes import size_runs
from anabranch.log.parquet.encodings import open_writer
from anabranch.log.parquet.file_format import METADATA_KEY, VERSION, file_columns
from anabranch.model.ids import LogId, SegmentId, StreamId

_COALESCE_BATCHES: Final = 1_024  # this many small batches are merged into one before more are buffered
_SAMPLE_ROWS: Final = 4_096


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A whole file in memory. `checksum` is xxh3-64 of all its bytes, as returned by `core.checksum`."""

    data: pa.Buffer
    checksum: int
    rows: int


class ParquetBuilder:
    """Builds one file, a row group at a time.

    Buffers at most `limits.PARQUET_ROWS_PER_GROUP` rows and about `limits.PARQUET_GROUP_BYTES_MAX` Arrow bytes besides
    the file itself. A row larger than `limits.EVENT_BYTES_MAX` gets a row group of its own, since many readers decode
    some thousand rows of a group at a time. `encryption`: see `Sealer.file_encryption`. `large`: such rows are
    expected.
    """

    def __init__(
        self,
        columns: pa.Schema,
        *,
        group_rows: int = limits.PARQUET_ROWS_PER_GROUP,
        group_bytes: int = limits.PARQUET_GROUP_BYTES_MAX,
        encryption: Any = None,
        large: bool = False,
    ) -> None:
        self._columns = columns
        self._large = large
        self._encryption = encryption
        self._schema = file_columns(columns)
        self._group_rows = group_rows
        self._group_bytes = group_bytes
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._buffered: list[pa.RecordBatch] = []  # of the row group under way, in order
        self._fresh: list[pa.RecordBatch] = []  # its latest batches, not merged yet
        self._buffered_rows = self._buffered_bytes = 0
        self._rows = self._groups = 0
        self._parts: list[dict[str, Any]] = []
        self._part: dict[str, Any] = {}

    def begin(
        self, stream: StreamId, log: LogId | None, start: int, version: int, *, segment: SegmentId | None = None
    ) -> int:
        """Begins a part at position `start` of a log, in a new row group; returns its first row in the file. In an
        archive, which has no logs, `start` is an offset of a `segment`."""
        assert self._buffered_rows == 0
        self._part = {
            "stream": f"{stream:016x}",
            "log": log,
            "start": start,
            "schema": version,
            "row": self._rows,
            "group": self._groups,
        }
        if segment is not None:
            self._part["segment"] = str(segment)
        return self._rows

    def write(self, batch: pa.RecordBatch, appended: pa.Array) -> None:
        """Adds rows to the part: a batch with the file's columns (see `codec.widen`), and their append times."""
        whole = pa.record_batch([*batch.columns, appended], schema=self._schema)
        for run in size_runs(pa.Table.from_batches([whole]), limits.EVENT_BYTES_MAX):
            if run.large:
                self._large = self._large or self._writer is None
                self._flush()
            self._add(whole.slice(run.start, run.stop - run.start))
            if run.large:
                self._flush()

    def _add(self, whole: pa.RecordBatch) -> None:
        row_bytes = max(1, whole.nbytes // max(1, whole.num_rows))
        at = 0
        while at < whole.num_rows:
            room = max(1, (self._group_bytes - self._buffered_bytes) // row_bytes)
            piece = whole.slice(at, min(room, self._group_rows - self._buffered_rows))
            at += piece.num_rows
            self._fresh.append(piece)
            self._buffered_rows += piece.num_rows
            self._buffered_bytes += piece.num_rows * row_bytes
            if self._buffered_rows >= self._group_rows or self._buffered_bytes >= self._group_bytes:
                self._flush()
            elif len(self._fresh) >= _COALESCE_BATCHES:
                self._coalesce()

    def end(self) -> None:
        """Ends the part: its row groups are complete."""
        self._flush()
        part = self._part
        rows = self._rows - part["row"]
        self._parts.append({**part, "stop": part["start"] + rows, "rows": rows, "groups": self._groups - part["group"]})

    def abandon(self) -> None:
        """Leaves the part out. Rows of it that are already in the file belong to no part."""
        self._clear()

    def finish(self, **metadata: object) -> WrittenFile:
        """Returns the file. At least one part must have been ended. `metadata` is added to its metadata."""
        assert self._writer is not None
        assert self._buffered_rows == 0
        text = json.dumps({"format": VERSION, "parts": self._parts, **metadata}, separators=(",", ":"))
        self._writer.add_key_value_metadata({METADATA_KEY: text.encode()})
        self._writer.close()
        data = self._sink.getvalue()
        return WrittenFile(data, checksum(data), self._rows)

    def _coalesce(self) -> None:
        # A batch of one row takes a kilobyte of bookkeeping, so small batches are merged.
        self._buffered += pa.Table.from_batches(self._fresh).combine_chunks().to_batches()
        self._fresh = []

    def _flush(self) -> None:
        if self._buffered_rows == 0:
            return
        table = pa.Table.from_batches([*self._buffered, *self._fresh])
        if self._writer is None:
            sample = table.slice(0, _SAMPLE_ROWS)
            self._writer = open_writer(self._sink, self._schema, sample, self._encryption, large=self._large)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        self._groups += 1
        self._clear()

    def _clear(self) -> None:
        self._buffered, self._fresh = [], []
        self._buffered_rows = self._buffered_bytes = 0
