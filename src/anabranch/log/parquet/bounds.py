"""Computes what decoding a row group can cost from its page headers, before any page is decompressed.

A file of some hundred bytes can expand to gigabytes: a page may claim any size, and a dictionary or a shared prefix
may repeat a long value a million times. So pages over a limit are refused, and fewer rows are decoded at a time if
values are long. Field numbers are those of github.com/apache/parquet-format, src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch import limits
from anabranch.errors import CorruptBlob
from anabranch.log.parquet.thrift import Struct, read_struct

_KIND, _SIZE, _STORED, _DATA, _DICTIONARY, _DATA_2 = 1, 2, 3, 5, 7, 8  # of a page header
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4  # of a data page's header; the last one in version 2
_IS_DATA, _IS_DICTIONARY, _IS_DATA_2 = 0, 2, 3
_OF_DICTIONARY: Final = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY
_SHARED_PREFIX: Final = 7  # DELTA_BYTE_ARRAY
_HEADER_BYTES: Final = 4 * limits.KIB  # tried first: most headers take some tens of bytes
_HEADER_BYTES_MAX: Final = 16 * limits.MIB
_TAIL_BYTES: Final = 8  # the footer's length and the closing magic number
_BYTES: Final = "BYTE_ARRAY"
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class Decoding(NamedTuple):
    """How row groups are decoded: at most `rows` at a time, and the columns `dictionaries` as dictionary arrays, which
    `dense` converts to plain ones."""

    rows: int
    dictionaries: tuple[str, ...] = ()


class _Chunk(NamedTuple):
    """A column's pages in a row group: the bytes of the largest, the number of values in all, the bytes of the
    dictionary, the bytes of the largest page whose values share prefixes, and whether all values are entries of the
    dictionary."""

    largest: int
    values: int
    dictionary: int
    shared: int
    pure: bool


class _Group(NamedTuple):
    """`width`: the most bytes of a row in columns without a dictionary. `chunks`: the pages of each column with one."""

    width: int
    chunks: dict[str, _Chunk]


class DecodingBounds:
    """The decoding bounds of a file's row groups. Raises CorruptBlob, naming `key`, if one claims more than a limit
    allows.

    `open_with_dictionaries` opens the file again with the given columns read as dictionaries."""

    def __init__(
        self,
        key: str,
        data: pa.Buffer,
        metadata: pq.FileMetaData,
        open_with_dictionaries: Callable[[tuple[str, ...]], Any],
    ) -> None:
        self._key = key
        self._data = data
        self._metadata = metadata
        self._open = open_with_dictionaries
        self._groups: dict[tuple[int, tuple[str, ...]], _Group] = {}  # by row group and columns
        self._entries: dict[tuple[int, str], int] = {}  # bytes of the longest entries of dictionaries

    def decoding(
        self, groups: Sequence[int], columns: Sequence[str], rows: int, *, as_dictionaries: bool = True
    ) -> Decoding:
        """How these columns of row groups are decoded: at most `rows` at a time, such that a batch takes about
        `limits.PARQUET_DECODED_BYTES_MAX` even if all rows have the longest values. Without `as_dictionaries`, no
        column is decoded as a dictionary; then their longest entries must be looked up."""
        wanted = tuple(columns)
        found = [self._group(group, wanted) for group in groups]
        if all(_rows(each.width + _weight(each)) >= limits.READ_ROWS_MAX for each in found):
            return Decoding(rows)
        paths = {path for each in found for path in each.chunks}
        pure = tuple(sorted(path for path in paths if all(path not in e.chunks or e.chunks[path].pure for e in found)))
        if not as_dictionaries:
            pure = ()
        for group, each in zip(groups, found, strict=True):
            mixed = [path for path in each.chunks if path not in pure]
            self._find_longest_entries(group, mixed)
            longest = (
                max(self._entries.get((group, p), each.chunks[p].dictionary), each.chunks[p].shared) for p in mixed
            )
            rows = min(rows, _rows(each.width + sum(longest)))
        return Decoding(max(1, rows), pure)

    def _group(self, group: int, columns: tuple[str, ...]) -> _Group:
        known = self._groups.get((group, columns))
        if known is None:
            known = self._groups[group, columns] = self._read_group(group, columns)
        return known

    def _read_group(self, group: int, columns: tuple[str, ...]) -> _Group:
        found = self._metadata.row_group(group)
        # Reading a column beyond the schema would crash the process.
        if found.num_columns != self._metadata.num_columns:
            what = f"its row group {group} has {found.num_columns} columns, its schema {self._metadata.num_columns}"
            raise CorruptBlob(self._key, what)
        chunks: dict[str, _Chunk] = {}
        width = pages = 0
        for leaf in range(found.num_columns):
            path = found.column(leaf).path_in_schema
            if path.partition(".")[0] not in columns and path not in columns:
                continue
            column, chunk = self._metadata.schema.column(leaf), self._read_pages(found.column(leaf))
            pages += chunk.largest
            is_bytes = column.physical_type == _BYTES
            longest = max(chunk.dictionary, chunk.shared) if is_bytes else _width(column)
            if column.max_repetition_level:  # one row may hold all values
                if chunk.values * longest > limits.PARQUET_NESTED_BYTES_MAX:
                    self._refuse(f"its column {path} claims {chunk.values:,} values of up to {longest:,} bytes")
            elif is_bytes and chunk.dictionary and path in columns:
                chunks[path] = chunk
            else:
                width += longest
        if pages > limits.PARQUET_PAGES_BYTES_MAX:
            self._refuse(f"the largest pages of its columns claim {pages:,} bytes")
        return _Group(width, chunks)

    def _read_pages(self, chunk: pq.ColumnChunkMetaData) -> _Chunk:
        """The pages of a column in a row group, from their headers."""
        at = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        if not at:
            at = chunk.data_page_offset
        stop = at + chunk.total_compressed_size
        if not 0 <= at <= stop <= self._data.size:
            self._refuse(f"its column {chunk.path_in_schema} lies at byte {at}, which is not in the file")
        largest = values = dictionary = shared = 0
        pure = True
        while at < stop and values < chunk.num_values:
            header, size = self._header(at, stop)
            try:
                kind, bytes_, stored = (int(header[field][1]) for field in (_KIND, _SIZE, _STORED))
                count, encoding = _page_values(header, kind)
            except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as exc:
                raise CorruptBlob(self._key, f"the header of its page at byte {at} is cut short") from exc
            if not 0 <= bytes_ <= limits.PARQUET_PAGE_BYTES_MAX:
                self._refuse(f"its page at byte {at} claims {bytes_:,} bytes")
            if stored < 0 or at + size + stored > stop:
                self._refuse(f"its page at byte {at} reaches beyond its column")
            if not 0 <= count <= limits.PARQUET_PAGE_VALUES_MAX or (kind == _IS_DICTIONARY and count > bytes_):
                self._refuse(f"its page at byte {at} claims {count:,} values")
            at += size + stored
            largest = max(largest, bytes_)
            if kind == _IS_DICTIONARY:
                dictionary = max(dictionary, bytes_)
            else:
                values += count
                shared = max(shared, bytes_ if encoding == _SHARED_PREFIX else 0)
                pure = pure and encoding in _OF_DICTIONARY
        return _Chunk(largest, values, dictionary, shared, pure)

    def _header(self, at: int, stop: int) -> tuple[Struct, int]:
        """The page header at a byte offset, and its length."""
        for length in (_HEADER_BYTES, _HEADER_BYTES_MAX):
            try:
                return read_struct(self._data.slice(at, min(length, stop - at)).to_pybytes())
            except (IndexError, ValueError) as exc:
                if length == _HEADER_BYTES_MAX or stop - at <= length:
                    raise CorruptBlob(self._key, f"the header of its page at byte {at} can't be read") from exc
        raise AssertionError("the last length has either returned or raised")

    def _find_longest_entries(self, group: int, paths: list[str]) -> None:
        """Finds the longest entry of each column's dictionary, by decoding a single row as a dictionary array."""
        paths = [path for path in paths if (group, path) not in self._entries]
        if not paths:
            return
        batch: Any = next(self._open(tuple(paths)).iter_batches(1, row_groups=[group], columns=paths), None)
        for path in paths if batch is not None else ():
            column = batch.column(path)
            if pa.types.is_dictionary(column.type):
                self._entries[group, path] = _longest(column)

    def _refuse(self, why: str) -> NoReturn:
        raise CorruptBlob(self._key, f"{why}; that is more than any file may claim")


def dense(batch: pa.RecordBatch, dictionaries: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in order, with the given dictionary columns as plain ones, in batches of about
    `limits.PARQUET_DECODED_BYTES_MAX`."""
    places = [i for i, name in enumerate(batch.schema.names) if name in dictionaries]
    places = [i for i in places if pa.types.is_dictionary(batch.column(i).type)]
    rows = _rows(sum(_longest(batch.column(i)) for i in places))
    for start in range(0, batch.num_rows, rows) if places else ():
        columns = batch.slice(start, rows).columns
        for i in places:
            columns[i] = columns[i].dictionary_decode()
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    if not places:
        yield batch


def _longest(column: pa.DictionaryArray) -> int:
    if not len(column.dictionary):
        return 0
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def _rows(width: int) -> int:
    return max(1, limits.PARQUET_DECODED_BYTES_MAX // max(1, width))


def _weight(group: _Group) -> int:
    return sum(max(chunk.dictionary, chunk.shared) for chunk in group.chunks.values())


def _width(column: pq.ColumnSchema) -> int:
    return _WIDTHS.get(column.physical_type) or int(column.length)


def _page_values(header: Struct, kind: int) -> tuple[int, int]:
    """The number of values of a page, and their encoding."""
    field = {_IS_DATA: _DATA, _IS_DICTIONARY: _DICTIONARY, _IS_DATA_2: _DATA_2}.get(kind)
    if field is None:
        return 0, 0  # an index page, which no reader uses
    of = header[field][1]
    encoding = _ENCODING_2 if kind == _IS_DATA_2 else _ENCODING
    return int(of[_VALUES][1]), int(of[encoding][1])


def bounded_batches(key: str, data: pa.Buffer, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of an unencrypted Parquet file, in batches whose memory is bounded whatever the file claims.
    Raises CorruptBlob, naming `key`, and pyarrow's errors."""
    refuse_footer(key, data)
    file = pq.ParquetFile(pa.BufferReader(data))

    def with_dictionaries(names: tuple[str, ...]) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(data), metadata=file.metadata, read_dictionary=list(names))

    bounds = DecodingBounds(key, data, file.metadata, with_dictionaries)
    for group in range(file.metadata.num_row_groups):
        rows = bounds.decoding([group], columns, limits.READ_ROWS_MAX, as_dictionaries=False).rows
        yield from file.iter_batches(rows, row_groups=[group], columns=list(columns))


def columns_of(key: str, data: pa.Buffer) -> pa.Schema:
    """The columns of an unencrypted Parquet file. Raises CorruptBlob, naming `key`, and pyarrow's errors."""
    refuse_footer(key, data)
    return pq.ParquetFile(pa.BufferReader(data)).schema_arrow


def refuse_footer(key: str, data: pa.Buffer) -> None:
    """Raise CorruptBlob, naming `key`, if the footer claims more bytes than a footer may have."""
    if data.size >= _TAIL_BYTES:
        length = int.from_bytes(data.slice(data.size - _TAIL_BYTES, 4).to_pybytes(), "little")
        if length > limits.PARQUET_FOOTER_BYTES_MAX:
            raise CorruptBlob(key, f"its footer claims {length:,} bytes")
