"""Copies row groups of Parquet files into another file without decoding: copies the pages, and adjusts their locations.

So the needed parts of a file that many logs share can be moved cheaply. Field numbers are those of
github.com/apache/parquet-format, src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import CorruptBlob
from anabranch.log.parquet.file_format import METADATA_KEY, VERSION
from anabranch.log.parquet.thrift import BINARY, I16, I32, I64, LIST, STRUCT, Struct, read_struct, write_struct

_MAGIC: Final = b"PAR1"
_SCHEMA, _ROWS, _GROUPS, _KEY_VALUES, _ORDERS = 2, 3, 4, 5, 7  # of the file
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7  # of a row group
_FILE_OFFSET, _META = 2, 3  # of a column's chunk
_OFFSET_INDEX, _OFFSET_SIZE, _COLUMN_INDEX, _COLUMN_SIZE = 4, 5, 6, 7
_STORED, _DATA, _INDEX, _DICTIONARY, _BLOOM, _BLOOM_SIZE = 7, 9, 10, 11, 14, 15  # of the chunk's metadata
_LOCATIONS, _PLACE = 1, 1  # of a page index, and of a page in it
_ORDINAL_MAX: Final = 32_767


class GroupedFile:
    """An unencrypted file whose row groups are to be copied. Raises CorruptBlob, naming `key`."""

    def __init__(self, key: str, data: pa.Buffer) -> None:
        self.key = key
        self.data = data
        try:
            if data.slice(data.size - 4).to_pybytes() != _MAGIC:
                raise ValueError("not an unencrypted Parquet file")
            length = int.from_bytes(data.slice(data.size - 8, 4).to_pybytes(), "little")
            self.footer, _ = read_struct(data.slice(data.size - 8 - length, length).to_pybytes())
            self.groups: list[Struct] = self.footer[_GROUPS][1][1]
            starts = [0, *accumulate(int(group[_GROUP_ROWS][1]) for group in self.groups)]
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as exc:
            raise CorruptBlob(key, f"its footer can't be read ({exc})") from exc
        self._starts = {start: number for number, start in enumerate(starts)}

    def groups_of(self, row: int, rows: int) -> range | None:
        """The row groups that hold exactly these rows; None if some of them hold other rows too."""
        first, stop = self._starts.get(row), self._starts.get(row + rows)
        return None if first is None or stop is None or first >= stop else range(first, stop)

    def is_compatible(self, other: GroupedFile) -> bool:
        """True if one file may hold row groups of both: their columns are equal, also in their Parquet
        representation."""
        mine, theirs = ({field: f.footer.get(field) for field in (_SCHEMA, _ORDERS)} for f in (self, other))
        return mine == theirs


class GroupsBuilder:
    """Builds a new file from row groups of other files, as chunks of bytes in memory."""

    def __init__(self, first: GroupedFile) -> None:
        self._first = first
        self._chunks: list[bytes] = [_MAGIC]
        self._size = len(_MAGIC)
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, bytes | None, Struct | None]] = []
        self._parts: list[dict[str, Any]] = []
        self._rows = 0

    def accepts(self, file: GroupedFile) -> bool:
        """True if row groups of the file may be added."""
        return self._first.is_compatible(file)

    def add(self, file: GroupedFile, groups: Sequence[int], part: dict[str, Any]) -> int:
        """Copies row groups, which become a part of the new file; adds the location of its rows there to `part`.
        Returns the part's first row. Raises CorruptBlob."""
        row, group, rows = self._rows, len(self._groups), 0
        for number in groups:
            try:
                rows += self._copy(file, file.groups[number])
            except (AttributeError, KeyError, IndexError, OverflowError, ValueError, TypeError) as exc:
                raise CorruptBlob(file.key, f"its row group {number} can't be read ({exc})") from exc
        self._rows += rows
        self._parts.append({**part, "row": row, "rows": rows, "group": group, "groups": len(groups)})
        return row

    def finish(self) -> list[bytes]:
        """The whole file."""
        for at, size, of in ((_COLUMN_INDEX, _COLUMN_SIZE, 1), (_OFFSET_INDEX, _OFFSET_SIZE, 2)):
            for chunk, *indexes in self._indexes:
                index = indexes[of - 1]
                if index is not None:
                    text = index if isinstance(index, bytes) else write_struct(index)
                    chunk[at], chunk[size] = (I64, self._size), (I32, len(text))
                    self._put(text)
        metadata = json.dumps({"format": VERSION, "parts": self._parts}, separators=(",", ":")).encode()
        footer = {
            **self._first.footer,
            _ROWS: (I64, self._rows),
            _GROUPS: (LIST, (STRUCT, self._groups)),
            _KEY_VALUES: (LIST, (STRUCT, _with_metadata(self._first.footer, metadata))),
        }
        text = write_struct(footer)
        self._put(text)
        self._put(len(text).to_bytes(4, "little") + _MAGIC)
        return self._chunks

    def _put(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)

    def _copy(self, file: GroupedFile, group: Struct) -> int:
        chunks: list[Struct] = group[_COLUMNS][1][1]
        starts = [_start(chunk[_META][1]) for chunk in chunks]
        ends = [at + chunk[_META][1][_STORED][1] for at, chunk in zip(starts, chunks, strict=True)]
        start, end = min(starts), max(ends)
        if not len(_MAGIC) <= start < end <= file.data.size:
            raise ValueError(f"it lies from byte {start} to {end}")
        shift = self._size - start
        self._put(file.data.slice(start, end - start).to_pybytes())
        columns = []
        for chunk in chunks:
            moved = _moved(chunk, shift)
            columns.append(moved)
            index = _bytes(file, chunk, _OFFSET_INDEX, _OFFSET_SIZE)
            pages = None if index is None else _shifted(read_struct(index)[0], shift)
            self._indexes.append((moved, _bytes(file, chunk, _COLUMN_INDEX, _COLUMN_SIZE), pages))
        copied = {**group, _COLUMNS: (LIST, (STRUCT, columns)), _ORDINAL: (I16, len(self._groups))}
        if len(self._groups) > _ORDINAL_MAX:
            del copied[_ORDINAL]
        if _GROUP_OFFSET in copied:
            copied[_GROUP_OFFSET] = (I64, group[_GROUP_OFFSET][1] + shift)
        self._groups.append(copied)
        return int(group[_GROUP_ROWS][1])


def _start(meta: Struct) -> int:
    """The byte offset of a column's first page."""
    dictionary = meta.get(_DICTIONARY)
    return int(dictionary[1] if dictionary is not None and dictionary[1] > 0 else meta[_DATA][1])


def _moved(chunk: Struct, shift: int) -> Struct:
    """A column's chunk at its new place, still without page indexes. A Bloom filter is not copied."""
    meta = {field: value for field, value in chunk[_META][1].items() if field not in (_BLOOM, _BLOOM_SIZE)}
    for field in (_DATA, _INDEX, _DICTIONARY):
        if field in meta and meta[field][1] > 0:
            meta[field] = (I64, meta[field][1] + shift)
    indexes = (_OFFSET_INDEX, _OFFSET_SIZE, _COLUMN_INDEX, _COLUMN_SIZE)
    moved = {field: value for field, value in chunk.items() if field not in indexes}
    offset = moved[_FILE_OFFSET][1]
    return {**moved, _META: (STRUCT, meta), _FILE_OFFSET: (I64, offset + shift if offset > 0 else offset)}


def _shifted(index: Struct, shift: int) -> Struct:
    """A page index with shifted locations."""
    kind, pages = index[_LOCATIONS][1]
    moved = [{**page, _PLACE: (I64, page[_PLACE][1] + shift)} for page in pages]
    return {**index, _LOCATIONS: (LIST, (kind, moved))}


def _bytes(file: GroupedFile, chunk: Struct, at: int, size: int) -> bytes | None:
    if at not in chunk or size not in chunk:
        return None
    found: bytes = file.data.slice(chunk[at][1], chunk[size][1]).to_pybytes()
    return found


def _with_metadata(footer: Struct, metadata: bytes) -> list[Struct]:
    """The key-value metadata of a file, with the store's own value replaced."""
    kept: list[Struct] = footer[_KEY_VALUES][1][1] if _KEY_VALUES in footer else []
    others = [pair for pair in kept if pair[1][1] != METADATA_KEY]
    return [*others, {1: (BINARY, METADATA_KEY), 2: (BINARY, metadata)}]
