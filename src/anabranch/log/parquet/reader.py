"""Reads tier-2 files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import limits
from anabranch.blobs.keys import is_attached
from anabranch.core.json_text import parse_count, parse_object
from anabranch.core.type_widening import as_type
from anabranch.errors import AnabranchError, CorruptBlob, CorruptCatalog, FormatTooNew
from anabranch.log.parquet import bounds as parquet_bounds
from anabranch.log.parquet.file_format import APPENDED, METADATA_KEY, VERSION
from anabranch.model.append import TimeBounds
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.runtime.sealing import Sealer

_ENCRYPTED: Final = b"PARE"  # the last bytes of a file with an encrypted footer
_FEW_ROWS: Final = 8_192


class ParquetReader:
    """A tier-2 file opened for reading; `sealer` is the store's. Raises CorruptBlob, naming `key`, if it is not such a
    file or has damaged pages; FormatTooNew for a newer release's file; KeyMissing, WrongKey."""

    def __init__(self, key: str, data: pa.Buffer, sealer: Sealer | None = None) -> None:
        self._key = key
        self._data = data
        parquet_bounds.refuse_footer(key, data)
        decryption = None
        encrypted = data.slice(max(0, data.size - len(_ENCRYPTED))).to_pybytes() == _ENCRYPTED
        if sealer is None and encrypted:
            raise CorruptBlob(key, "not a Parquet file that can be read without keys")
        if sealer is not None:
            # pyarrow would accept an unencrypted file too, but no holder of a key has written such a file.
            if not encrypted:
                raise CorruptBlob(key, "the store is encrypted, and this is not an encrypted Parquet file")
            decryption = sealer.file_decryption(key)
        try:
            self._file = pq.ParquetFile(
                pa.BufferReader(data), page_checksum_verification=True, decryption_properties=decryption
            )
            self.schema: pa.Schema = self._file.schema_arrow
        except AnabranchError:  # about the store's key; some of these errors are OSErrors too
            raise
        except (pa.ArrowException, OSError, ValueError) as exc:
            raise CorruptBlob(key, f"not a Parquet file ({exc})") from exc
        self.metadata = self._file.metadata
        # Only a holder of the key can have made the pages of an encrypted file; their headers can't be read anyway.
        self._dictionaries: dict[tuple[str, ...], pq.ParquetFile] = {}
        self._bounds = (
            None
            if encrypted
            else parquet_bounds.DecodingBounds(
                key, data, self.metadata, partial(_opened_with_dictionaries, data, self.metadata)
            )
        )
        self._own_metadata = self._read_own_metadata()
        self._starts = [0]
        for group in range(self.metadata.num_row_groups):
            self._starts.append(self._starts[-1] + self.metadata.row_group(group).num_rows)

    def _with_dictionaries(self, columns: tuple[str, ...]) -> pq.ParquetFile:
        """The file, opened so that these columns are decoded as dictionaries."""
        if not columns:
            return self._file
        if columns not in self._dictionaries:
            self._dictionaries[columns] = _opened_with_dictionaries(self._data, self.metadata, columns)
        return self._dictionaries[columns]

    @property
    def rows(self) -> int:
        """The number of rows of the whole file."""
        return self._starts[-1]

    def parts(self) -> list[dict[str, Any]]:
        """The parts, from the key-value metadata, in row order. An attached file from elsewhere is one part of no
        log."""
        if not self._own_metadata:
            groups = self.metadata.num_row_groups
            return [
                {"log": None, "start": 0, "stop": self.rows, "row": 0, "rows": self.rows, "group": 0, "groups": groups}
            ]
        return list(self._own_metadata["parts"])

    def metadata_value(self, name: str) -> object:
        """Another value from the key-value metadata; None if it has no such name."""
        return self._own_metadata.get(name)

    def _read_own_metadata(self) -> dict[str, Any]:
        kept = self.metadata.metadata or {}
        if METADATA_KEY not in kept and is_attached(self._key):
            return {}
        try:
            metadata = parse_object(kept[METADATA_KEY])
            version, parts = parse_count(metadata["format"]), list(metadata["parts"])
            for part in parts:
                _check_part(part)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as exc:
            raise CorruptBlob(self._key, "its metadata does not name its parts") from exc
        if version > VERSION:
            raise FormatTooNew(f"blob {self._key}", version, VERSION)
        return metadata

    def stored_bytes(self, row: int, count: int) -> int:
        """The compressed size in bytes of the row groups that hold these rows."""
        groups = self._groups(row, row + count)
        sizes = (self.metadata.row_group(group) for group in groups)
        return sum(g.column(i).total_compressed_size for g in sizes for i in range(g.num_columns))

    def bounds(self, groups: Sequence[int], column: str) -> TimeBounds:
        """The minimum and maximum of a timestamp column in these row groups, if their statistics have them, else
        None."""
        index = self._file.schema_arrow.get_field_index(column)
        if index < 0 or self._file.schema_arrow.field(index).type != TIME_TYPE:
            return TimeBounds(None, None)
        names = [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]
        leaf = names.index(column)
        statistics = [self.metadata.row_group(group).column(leaf).statistics for group in groups]
        known = [(each.min_raw, each.max_raw) for each in statistics if each is not None and each.has_min_max]
        if not known:
            return TimeBounds(None, None)
        return TimeBounds(Micros(min(low for low, _ in known)), Micros(max(high for _, high in known)))

    def has_bounds(self, groups: Sequence[int], column: str) -> bool:
        """True if the statistics of each row group have the minimum and maximum of a column, or say that it is all
        null."""
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
        """Rows `row … row + count - 1` in order, as batches of `columns` (nulls if the file has an older schema) with
        their append times. In an attached file that no store has written, every append time is `appended`. Other
        columns are not read."""
        own = bool(self._own_metadata)
        wanted = [name for name in self.schema.names if (own and name == APPENDED) or name in columns.names]
        # A caller that reads a few rows should not wait for many to be decoded.
        batch_rows = limits.READ_ROWS_MAX if count > _FEW_ROWS else _FEW_ROWS
        try:
            position = row
            for groups in self._portions(row, row + count):
                position = self._starts[groups[0]]
                for batch in self._batches(groups, wanted, batch_rows):
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
            raise CorruptBlob(self._key, f"expected {row + count} rows, found {self.rows}")

    def _batches(self, groups: list[int], columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of row groups in order, at most `rows` at a time."""
        decoding = parquet_bounds.Decoding(rows)
        if self._bounds is not None:
            decoding = self._bounds.decoding(groups, columns, rows)
        file = self._with_dictionaries(decoding.dictionaries)
        for batch in file.iter_batches(decoding.rows, row_groups=groups, columns=columns):
            yield from parquet_bounds.dense(batch, decoding.dictionaries)

    def _portions(self, row: int, stop: int) -> Iterator[list[int]]:
        """The row groups that hold these rows, in portions that may become one batch: pyarrow limits its batches by
        rows only, and would put many large events into one."""
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


def _check_part(part: dict[str, Any]) -> None:
    """Raises ValueError, KeyError or TypeError for a part that no release has written."""
    if part["log"] is not None:
        parse_count(part["log"])
    for name in ("start", "stop", "row", "rows", "group", "groups"):
        if name in part:
            parse_count(part[name])
    if "stream" in part:
        int(part["stream"], 16)


def _repeated(appended: Micros | None, count: int) -> pa.Array:
    if appended is None:
        raise CorruptCatalog("an extent of an attached file has no append time", "extents")
    return pa.repeat(pa.scalar(appended, TIME_TYPE), count)


def _as_columns(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    names = set(batch.schema.names)
    arrays = []
    for field in columns:
        if field.name not in names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        # Parquet renames the inner fields of lists and maps; and the column may have been widened.
        arrays.append(as_type(column, field))
    return pa.record_batch(arrays, schema=columns)


def _opened_with_dictionaries(data: pa.Buffer, metadata: pq.FileMetaData, columns: tuple[str, ...]) -> pq.ParquetFile:
    """A file opened so that these columns are decoded as dictionaries. No method: a reader and its bounds would refer to
    each other, and the file's bytes would be held until the garbage collector runs."""
    return pq.ParquetFile(
        pa.BufferReader(data), metadata=metadata, page_checksum_verification=True, read_dictionary=list(columns)
    )
