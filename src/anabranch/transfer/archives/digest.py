"""A digest of events that does not depend on where and how they are stored: SHA-256, in a tree.

It covers segments, offsets, key ranges, columns, values and append times. It does not cover names, ids of streams,
tags, files, encodings, or columns that hold only nulls. So a copy, an archive, an import and a compacted stream have
the digest of their source. `docs/how-to/archives.md` is the contract; this file is its code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.schema import StreamSchema

BLOCK_ROWS: Final = 4_096  # events with the same offset // BLOCK_ROWS are digested together; part of the format

_APPENDED: Final = "_appended"


class SegmentPart(NamedTuple):
    """The events `start <= offset < stop` of a segment, and their digest."""

    segment: SegmentId
    range: KeyRange
    start: int
    stop: int
    digest: str


@dataclass(frozen=True, slots=True)
class StreamDigest:
    """The digest of a stream or stream range, and those of its segments that hold events, in id order. `value` and the
    digests are SHA-256, 64 hex digits."""

    value: str
    events: int
    segments: tuple[SegmentPart, ...]

    @classmethod
    def of(cls, schema: StreamSchema, parts: Iterable[SegmentPart]) -> StreamDigest:
        """Join the digests of segments. Segments without events do not count."""
        held = tuple(sorted(part for part in parts if part.start < part.stop))
        roles = json.dumps([schema.key, schema.time, schema.raw], separators=(",", ":"))
        sum_ = hashlib.sha256(f"anabranch stream 1\n{roles}\n".encode())
        for part in held:
            sum_.update(bytes.fromhex(part.digest))
        return cls(sum_.hexdigest(), sum(part.stop - part.start for part in held), held)


def segment_digest(segment: SegmentId, range_: KeyRange, start: int, stop: int, blocks: Sequence[bytes]) -> SegmentPart:
    """Join the digests of the blocks of the offsets `start <= offset < stop`."""
    head = f"anabranch segment 1\n{segment} {range_.low:x} {range_.high:x} {start} {stop}\n"
    sum_ = hashlib.sha256(head.encode())
    for block in blocks:
        sum_.update(block)
    return SegmentPart(segment, range_, start, stop, sum_.hexdigest())


def block_edges(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The blocks of a range of offsets, as ranges."""
    while start < stop:
        edge = min(stop, (start // BLOCK_ROWS + 1) * BLOCK_ROWS)
        yield start, edge
        start = edge


class BlockSums:
    """The digests of the blocks of events that are added in offset order from `start`. No event is kept once it is
    digested."""

    def __init__(self, start: int) -> None:
        self._offset = self._begun = start
        self._columns: dict[str, _ColumnDigest] = {}
        self._done: list[bytes] = []

    @property
    def offset(self) -> int:
        """The offset of the next event."""
        return self._offset

    def add(self, batch: pa.RecordBatch, appended: pa.Array) -> None:
        """Add events: their body columns, in any column order, and their append times."""
        columns = [*zip(batch.schema.names, batch.columns, strict=True), (_APPENDED, appended)]
        first = self._offset
        for low, high in block_edges(first, first + batch.num_rows):
            for name, values in columns:
                if name not in self._columns:
                    self._columns[name] = _ColumnDigest(values.type, self._offset - self._begun)
                self._columns[name].add(values.slice(low - first, high - low))
            self._offset = high
            if high % BLOCK_ROWS == 0:
                self._close()

    def blocks(self) -> list[bytes]:
        """The digests so far. After a partial block no more events can be added."""
        self._close()
        return self._done

    def _close(self) -> None:
        if self._offset == self._begun:
            return
        sum_ = hashlib.sha256(b"anabranch block 1\n" + _numbers(self._begun, self._offset))
        for name in sorted(self._columns, key=str.encode):
            column = self._columns[name]
            if column.values:
                assert column.rows == self._offset - self._begun
                coded = name.encode()
                sum_.update(_numbers(len(coded)) + coded + column.digest())
        self._done.append(sum_.digest())
        self._begun = self._offset
        self._columns = {}


class _ColumnDigest:
    """The digest of a column, or of the values within nested ones."""

    def __init__(self, kind: pa.DataType, nulls: int = 0) -> None:
        self.rows = nulls
        self.values = 0
        self._kind = kind
        self._valid = hashlib.sha256(bytes(nulls))
        self._lengths = hashlib.sha256(bytes(8 * nulls) if _measured(kind) else b"")
        self._data = hashlib.sha256(bytes(nulls * _width(kind)))
        self._inner = [_ColumnDigest(each, nulls if pa.types.is_struct(kind) else 0) for each in _inner_types(kind)]

    def add(self, values: pa.Array) -> None:
        valid = np.ones(len(values), np.uint8)
        if values.null_count:
            valid = values.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)
        self.rows += len(values)
        self.values += len(values) - values.null_count
        self._valid.update(valid.data)
        kind, types = self._kind, pa.types
        if types.is_null(kind):
            return
        if types.is_struct(kind):
            for column, inner in zip(self._inner, values.flatten(), strict=True):
                column.add(inner)
        elif _measured(kind):
            self._add_measured(values, valid)
        elif types.is_boolean(kind):
            whole = values.cast(pa.uint8())
            self._data.update((pc.fill_null(whole, 0) if values.null_count else whole).to_numpy())
        else:
            self._data.update(_fixed(values, valid, _width(kind)))

    def _add_measured(self, values: pa.Array, valid: Any) -> None:
        """Text, bytes, lists and maps: first the length of each, then their contents."""
        held = values.drop_null() if values.null_count else values
        edges = held.offsets.to_numpy() if self._inner else _text_edges(held)
        lengths = np.zeros(len(values), np.int64)
        lengths[valid.astype(bool)] = np.diff(edges)
        self._lengths.update(lengths.data)
        if not len(held):
            return
        low, high = int(edges[0]), int(edges[-1])
        if not self._inner:
            data = held.buffers()[2]
            if data is not None:
                self._data.update(memoryview(data)[low:high])
            return
        whole = (held.keys, held.items) if pa.types.is_map(self._kind) else (held.values,)
        for column, inner in zip(self._inner, whole, strict=True):
            column.add(inner.slice(low, high - low))

    def digest(self) -> bytes:
        sum_ = hashlib.sha256(f"{_type_text(self._kind)}\n".encode() + _numbers(self.rows))
        for part in (self._valid, self._lengths, self._data):
            sum_.update(part.digest())
        for column in self._inner:
            sum_.update(column.digest())
        return sum_.digest()


def _fixed(values: pa.Array, valid: Any, width: int) -> Any:
    """The bytes of fixed-width values, zeros for nulls."""
    data = np.frombuffer(values.buffers()[1], np.uint8)[width * values.offset : width * (values.offset + len(values))]
    return data.reshape(len(values), width) * valid[:, None] if values.null_count else data


def _text_edges(values: pa.Array) -> Any:
    if not len(values):
        return np.zeros(1, np.int32)
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _measured(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind))


def _width(kind: pa.DataType) -> int:
    """The number of bytes of one value; 0 if the type is nested or of variable width."""
    if pa.types.is_boolean(kind):
        return 1
    if _measured(kind) or pa.types.is_struct(kind) or pa.types.is_null(kind):
        return 0
    return int(kind.bit_width) // 8


def _inner_types(kind: pa.DataType) -> list[pa.DataType]:
    types = pa.types
    if types.is_struct(kind):
        return [field.type for field in kind]
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if types.is_list(kind) else []


def _type_text(kind: pa.DataType) -> str:
    """A type's name; for a nested type without the types of its inner values, which are digested on their own."""
    types = pa.types
    if types.is_struct(kind):
        return f"struct{json.dumps([field.name for field in kind], separators=(',', ':'))}"
    if types.is_map(kind):
        return "map"
    return "list" if types.is_list(kind) else str(kind)


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def appended_array(appended: int | pa.Array, count: int) -> pa.Array:
    """Append times of `count` events as an array; an int means that all have the same one."""
    return pa.repeat(pa.scalar(appended, TIME_TYPE), count) if isinstance(appended, int) else appended
