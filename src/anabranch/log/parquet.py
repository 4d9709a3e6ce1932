"""Tier-2 files: plain Parquet that any engine reads, and what this store adds to it.

Rows stand in log order. Columns are those of the stream's schema, then `_appended`, each row's append time. A file
holds one part or several; a part is a run of one log's rows in whole row groups. The key-value metadata `anabranch`
is JSON that names the format and the parts. `docs/FORMATS.md` is the contract.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch import limits
from anabranch.blobs.keys import is_attached
from anabranch.core.checksum import checksum
from anabranch.core.sizes import runs
from anabranch.core.widen import as_type
from anabranch.errors import AnabranchError, CorruptBlob, FormatTooNew
from anabranch.model.append import Bounds
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.runtime.sealing import Sealer

APPENDED: Final = "_appended"
METADATA_KEY: Final = b"anabranch"
VERSION: Final = 1

_ENCRYPTED: Final = b"PARE"  # how a file ends whose footer is encrypted

_COALESCE_BATCHES = 1_024  # so many small batches become one before they are buffered further
_SAMPLE_ROWS = 4_096
_FEW_ROWS = 8_192
_SAMPLE_ROWS_MIN = 64


def file_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of a file whose rows have `columns`."""
    return pa.schema([*columns, pa.field(APPENDED, TIME_TYPE)])


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A whole file in memory. `checksum` is xxh3-64 of all its bytes, as `core.checksum` gives it."""

    data: pa.Buffer
    checksum: int
    rows: int


class ParquetBuilder:
    """Builds one file, a row group at a time: at most `limits.PARQUET_ROWS_PER_GROUP` rows and about
    `limits.PARQUET_GROUP_BYTES_MAX` Arrow bytes are buffered beside the file itself. A row beyond
    `limits.EVENT_BYTES_MAX` has a row group of its own, since many readers decode some thousand rows of one at a time.
    `encryption`: see `Sealer.file_encryption`. `large`: such rows are expected."""

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
        self._held: list[pa.RecordBatch] = []  # of the row group under way, in order
        self._fresh: list[pa.RecordBatch] = []  # its last ones, not yet made one
        self._held_rows = self._held_bytes = 0
        self._rows = self._groups = 0
        self._parts: list[dict[str, Any]] = []
        self._part: dict[str, Any] = {}

    def begin(
        self, stream: StreamId, log: LogId | None, start: int, version: int, *, segment: SegmentId | None = None
    ) -> int:
        """Begin a part at position `start` of a log, in a row group of its own; returns its first row in the file. In an
        archive, which has no logs, `start` is an offset of a `segment`."""
        assert self._held_rows == 0
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
        """Add rows of the part: a batch of the file's columns (`codec.widen` helps), and their append times."""
        whole = pa.record_batch([*batch.columns, appended], schema=self._schema)
        for run in runs(pa.Table.from_batches([whole]), limits.EVENT_BYTES_MAX):
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
            room = max(1, (self._group_bytes - self._held_bytes) // row_bytes)
            piece = whole.slice(at, min(room, self._group_rows - self._held_rows))
            at += piece.num_rows
            self._fresh.append(piece)
            self._held_rows += piece.num_rows
            self._held_bytes += piece.num_rows * row_bytes
            if self._held_rows >= self._group_rows or self._held_bytes >= self._group_bytes:
                self._flush()
            elif len(self._fresh) >= _COALESCE_BATCHES:
                self._coalesce()

    def end(self) -> None:
        """End the part: its row groups are complete."""
        self._flush()
        part = self._part
        rows = self._rows - part["row"]
        self._parts.append({**part, "stop": part["start"] + rows, "rows": rows, "groups": self._groups - part["group"]})

    def abandon(self) -> None:
        """Leave the part out. Rows of it that lie in the file already belong to nobody."""
        self._clear()

    def finish(self, **told: object) -> WrittenFile:
        """The file. At least one part has been ended. Its metadata tells what is `told` too."""
        assert self._writer is not None
        assert self._held_rows == 0
        text = json.dumps({"format": VERSION, "parts": self._parts, **told}, separators=(",", ":"))
        self._writer.add_key_value_metadata({METADATA_KEY: text.encode()})
        self._writer.close()
        data = self._sink.getvalue()
        return WrittenFile(data, checksum(data), self._rows)

    def _coalesce(self) -> None:
        # A batch of one row costs a kilobyte of bookkeeping, so many small ones are not kept as they are.
        self._held += pa.Table.from_batches(self._fresh).combine_chunks().to_batches()
        self._fresh = []

    def _flush(self) -> None:
        if self._held_rows == 0:
            return
        table = pa.Table.from_batches([*self._held, *self._fresh])
        if self._writer is None:
            sample = table.slice(0, _SAMPLE_ROWS)
            self._writer = _open_writer(self._sink, self._schema, sample, self._encryption, large=self._large)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        self._groups += 1
        self._clear()

    def _clear(self) -> None:
        self._held, self._fresh = [], []
        self._held_rows = self._held_bytes = 0


def _open_writer(
    sink: pa.BufferOutputStream, schema: pa.Schema, sample: pa.Table, encryption: Any, *, large: bool
) -> pq.ParquetWriter:
    repeating = [path for field in schema for path in _dictionary_paths(field, sample.column(field.name))]
    compared: bool | list[str] = True
    if large:
        # Dictionaries and statistics are made of copies: of values of some 100 MiB they cost ten times the rest.
        leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
        compared = [path for path, kind in leaves if not _is_text(kind)]
        repeating = [path for path in repeating if path in compared]
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        data_page_version="1.0",  # every engine reads these
        compression="zstd",
        use_dictionary=repeating,
        write_statistics=compared,
        write_page_index=True,
        write_page_checksum=True,
        encryption_properties=encryption,
    )


def _dictionary_paths(field: pa.Field, sample: pa.ChunkedArray) -> list[str]:
    """The paths of a column's leaves that gain from a dictionary: those of nested columns, and values that repeat."""
    if pa.types.is_nested(field.type):
        return [path for path, _ in _leaves(field.name, field.type)]
    if len(sample) < _SAMPLE_ROWS_MIN:
        return [field.name]
    try:
        repeats = 2 * pc.count_distinct(sample).as_py() <= len(sample)
    except pa.ArrowNotImplementedError:
        repeats = True
    return [field.name] if repeats else []


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The paths of a column's leaves, with their types."""
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


class ParquetReader:
    """A tier-2 file opened for reading, `sealer` being the store's. Raises CorruptBlob, naming `key`, for what is no such
    file or has damaged pages; FormatTooNew for a newer release's file; KeyMissing, WrongKey."""

    def __init__(self, key: str, data: pa.Buffer, sealer: Sealer | None = None) -> None:
        self._key = key
        decryption = None
        encrypted = data.slice(max(0, data.size - len(_ENCRYPTED))).to_pybytes() == _ENCRYPTED
        if sealer is None and encrypted:
            raise CorruptBlob(key, "no Parquet file that can be read without keys")
        if sealer is not None:
            # pyarrow would take a file in the clear as well, which nobody with a key has written.
            if not encrypted:
                raise CorruptBlob(key, "the store is encrypted, and this is no encrypted Parquet file")
            decryption = sealer.file_decryption(key)
        try:
            self._file = pq.ParquetFile(
                pa.BufferReader(data), page_checksum_verification=True, decryption_properties=decryption
            )
        except AnabranchError:  # of the store's key, some of which are OSErrors too
            raise
        except (pa.ArrowException, OSError, ValueError) as exc:
            raise CorruptBlob(key, f"no Parquet file ({exc})") from exc
        self.metadata = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self._told = self._read_told()
        self._starts = [0]
        for group in range(self.metadata.num_row_groups):
            self._starts.append(self._starts[-1] + self.metadata.row_group(group).num_rows)

    @property
    def rows(self) -> int:
        """Rows of the whole file."""
        return self._starts[-1]

    def parts(self) -> list[dict[str, Any]]:
        """What the key-value metadata tells of the parts, in row order. An attached file that no store has written is
        one part of no log."""
        if not self._told:
            return [{"log": None, "start": 0, "stop": self.rows, **self._all_rows()}]
        return list(self._told["parts"])

    def told(self, name: str) -> object:
        """What else the key-value metadata tells; None where it does not."""
        return self._told.get(name)

    def _all_rows(self) -> dict[str, int]:
        return {"row": 0, "rows": self.rows, "group": 0, "groups": self.metadata.num_row_groups}

    def _read_told(self) -> dict[str, Any]:
        kept = self.metadata.metadata or {}
        if METADATA_KEY not in kept and is_attached(self._key):
            return {}
        try:
            told: dict[str, Any] = json.loads(kept[METADATA_KEY])
            version, _ = int(told["format"]), list(told["parts"])
        except (KeyError, TypeError, ValueError) as exc:
            raise CorruptBlob(self._key, "its metadata does not name its parts") from exc
        if version > VERSION:
            raise FormatTooNew(f"blob {self._key}", version, VERSION)
        return told

    def stored_bytes(self, row: int, count: int) -> int:
        """Compressed bytes of the row groups that hold these rows."""
        groups = self._groups(row, row + count)
        sizes = (self.metadata.row_group(group) for group in groups)
        return sum(g.column(i).total_compressed_size for g in sizes for i in range(g.num_columns))

    def bounds(self, groups: Sequence[int], column: str) -> Bounds:
        """Smallest and greatest value of a column of 64-bit integers or times in these row groups, by their
        statistics; None where those do not tell."""
        index = self._file.schema_arrow.get_field_index(column)
        if index < 0 or self._file.schema_arrow.field(index).type != TIME_TYPE:
            return Bounds(None, None)
        names = [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]
        leaf = names.index(column)
        told = [self.metadata.row_group(group).column(leaf).statistics for group in groups]
        known = [(each.min_raw, each.max_raw) for each in told if each is not None and each.has_min_max]
        if not known:
            return Bounds(None, None)
        return Bounds(Micros(min(low for low, _ in known)), Micros(max(high for _, high in known)))

    def has_bounds(self, groups: Sequence[int], column: str) -> bool:
        """True if the statistics tell smallest and greatest value of a column in each of these row groups, or that it
        holds none."""
        names = [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]
        if column not in names:
            return False
        leaf = names.index(column)
        chunks = [self.metadata.row_group(group).column(leaf) for group in groups]
        return all(
            each.statistics is not None
            and (each.statistics.has_min_max or each.statistics.null_count == each.num_values)
            for each in chunks
        )

    def read(
        self, row: int, count: int, columns: pa.Schema, appended: Micros | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Rows `row … row + count - 1` in order, as batches of `columns` (nulls where the file is of an older schema)
        with their append times: `appended` in an attached file that no store has written. Other columns are not
        read."""
        own = bool(self._told)
        wanted = [name for name in self.schema.names if (own and name == APPENDED) or name in columns.names]
        # Whoever wants a few rows does not wait for many to be decoded.
        batch_rows = limits.READ_ROWS_MAX if count > _FEW_ROWS else _FEW_ROWS
        try:
            position = row
            for groups in self._portions(row, row + count):
                position = self._starts[groups[0]]
                for batch in self._file.iter_batches(batch_rows, row_groups=groups, columns=wanted):
                    first, stop = max(row - position, 0), min(row + count - position, batch.num_rows)
                    position += batch.num_rows
                    if first < stop:
                        piece = batch.slice(first, stop - first)
                        times = piece.column(APPENDED) if own else _repeated(appended, piece.num_rows)
                        yield _as_columns(piece, columns), times
        except AnabranchError:  # a SchemaMismatch is a ValueError too
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as exc:
            raise CorruptBlob(self._key, f"its pages can't be read ({exc})") from exc
        if position < row + count:
            raise CorruptBlob(self._key, f"it holds {self.rows} rows, {row + count} were expected")

    def _portions(self, row: int, stop: int) -> Iterator[list[int]]:
        """The row groups that hold these rows, as many at a time as may become one batch: pyarrow's batches know rows
        alone, and would put many large events together."""
        portion: list[int] = []
        size = 0
        for group in self._groups(row, stop):
            weight = self.metadata.row_group(group).total_byte_size
            if portion and size + weight > limits.READ_BYTES_MAX:
                yield portion
                portion, size = [], 0
            portion.append(group)
            size += weight
        if portion:
            yield portion

    def _groups(self, row: int, stop: int) -> list[int]:
        starts = self._starts
        return [i for i in range(len(starts) - 1) if starts[i] < stop and starts[i + 1] > row]


def _repeated(appended: Micros | None, count: int) -> pa.Array:
    assert appended is not None, "whoever attached the file said when"
    return pa.repeat(pa.scalar(appended, TIME_TYPE), count)


def _as_columns(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    names = set(batch.schema.names)
    arrays = []
    for field in columns:
        if field.name not in names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        # Parquet has its own names for the inner fields of lists and maps; and the column may have been widened.
        arrays.append(as_type(column, field))
    return pa.record_batch(arrays, schema=columns)
