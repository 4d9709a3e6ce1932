"""Reads Arrow IPC streams and files from elsewhere in bounded memory.

Each message is checked before Arrow decompresses it, and the decoded values are validated. A batch whose plain form
would be much larger than its bytes (a dictionary repeats one long value, views overlap) is cut into slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.ipc_message import Block, Claims, claims_of, file_blocks

FILE_MAGIC: Final = b"ARROW1"
_INT32_BYTES: Final = 4
_PREFIX_BYTES: Final = 8  # the continuation marker and the metadata's length; before Arrow 0.15, the length alone
_CONTINUED: Final = b"\xff\xff\xff\xff"
_NULL_BYTES: Final = 16  # a row of a column without values may become this wide


class BoundedBatches:
    """The columns and the batches of an IPC stream or file. Raises ValueError if a message claims more than a limit
    allows, and pyarrow's errors if it can't be decoded."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            batch.validate(full=True)  # else Arrow would follow offsets that point outside their buffer
            yield from slices(batch)


def open_bounded(data: pa.Buffer) -> BoundedBatches:
    """Open an IPC file or stream whose bytes are already in memory or mapped."""
    if data.slice(0, len(FILE_MAGIC)).to_pybytes() != FILE_MAGIC:
        return _open_stream(pa.BufferReader(data))
    view, dictionaries = memoryview(data).cast("B"), _Dictionaries()
    for block in file_blocks(_footer(view)):
        dictionaries.check(_claims_at(view, block))
    file = pa.ipc.open_file(pa.BufferReader(data))
    return BoundedBatches(file.schema, (file.get_batch(i) for i in range(file.num_record_batches)))


def open_bounded_pipe(read: Callable[[int], bytes]) -> BoundedBatches:
    """Open an IPC stream; `read(n)` returns exactly n bytes, fewer only at the end."""
    return _open_stream(_Input(_bounded_read(read)))


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in order, in slices whose plain form takes about `limits.PARQUET_DECODED_BYTES_MAX`."""
    width = sum(map(_expanding_width, batch.columns))
    rows = max(1, limits.PARQUET_DECODED_BYTES_MAX // width) if width else max(1, batch.num_rows)
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def _open_stream(source: Any) -> BoundedBatches:
    stream = pa.ipc.open_stream(_Input(_message_reader(pa.ipc.MessageReader.open_stream(source))))
    return BoundedBatches(stream.schema, iter(stream))


def _message_reader(messages: Any) -> Callable[[int], bytes | memoryview]:
    """The bytes of the messages, each checked before the first of its bytes is returned."""
    dictionaries, unread = _Dictionaries(), memoryview(b"")

    def read(size: int) -> bytes | memoryview:
        nonlocal unread
        if not unread:
            try:
                message = messages.read_next_message()
            except StopIteration:
                return b""
            dictionaries.check(claims_of(_bytes(message.metadata), _bytes(message.body)))
            unread = _bytes(message.serialize())
        part, unread = unread[:size], unread[size:]
        return part

    return read


def _bounded_read(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def bounded(size: int) -> bytes:
        if size > limits.ARROW_MESSAGE_BYTES_MAX:
            raise _claims_too_much(f"{size:,} bytes")
        return read(size)

    return bounded


class _Dictionaries:
    """The dictionaries of a stream, which are all in memory together, and the bound of each message."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def check(self, claims: Claims) -> None:
        """Raise ValueError if a message claims more than a limit allows."""
        size = claims.size
        if claims.dictionary is not None:
            before = self._sizes.get(claims.dictionary, 0) if claims.delta else 0
            self._sizes[claims.dictionary] = before + claims.size
            size = sum(self._sizes.values())
        if size > limits.ARROW_MESSAGE_BYTES_MAX:
            raise _claims_too_much(f"{size:,} bytes")
        if not 0 <= claims.rows <= limits.ARROW_MESSAGE_ROWS_MAX:
            raise _claims_too_much(f"{claims.rows:,} rows")


def _bytes(data: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if data is None else data).cast("B")


def _claims_too_much(what: str) -> ValueError:
    return ValueError(f"a message claims {what}; that is more than any message may claim")


class _Input:
    """Presents a read function as a file object for Arrow."""

    closed = False

    def __init__(self, read: Callable[[int], bytes | memoryview]) -> None:
        self.read = read

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always false."""
        return False

    def close(self) -> None:
        """Does nothing: the source's owner closes it."""


def _footer(view: memoryview) -> memoryview:
    end = len(view) - len(FILE_MAGIC) - _INT32_BYTES
    length = int.from_bytes(view[max(end, 0) : end + _INT32_BYTES], "little", signed=True) if end > 0 else 0
    if not 0 < length <= end:
        raise ValueError("its footer is incomplete")
    return view[end - length : end]


def _claims_at(view: memoryview, block: Block) -> Claims:
    """The sizes that the message of a block claims. Raises ValueError if the block is not within the file."""
    body = block.offset + block.metadata_length
    if not 0 <= block.offset < body <= len(view):
        raise ValueError(f"its message at byte {block.offset} is not in the file")
    continued = bytes(view[block.offset : block.offset + _INT32_BYTES]) == _CONTINUED
    start = block.offset + (_PREFIX_BYTES if continued else _INT32_BYTES)
    return claims_of(view[start:body], view[body:])


def _expanding_width(column: pa.Array) -> int:
    """The most bytes of a row's plain form, if the column may stand for more bytes than it holds; else 0."""
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return _NULL_BYTES
    if types.is_dictionary(kind):
        return max(1, _longest(column.dictionary))
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return max(1, _longest(column))
    # One row may hold all values of a nested column, so that cutting between rows would not help.
    if types.is_nested(kind) and (size := _expanded(column)) > limits.PARQUET_NESTED_BYTES_MAX:
        raise _claims_too_much(f"{size:,} bytes in a column of {kind}")
    return 0


def _expanded(column: pa.Array) -> int:
    """The bytes of the plain form of those values of a nested column that may stand for more bytes than they hold."""
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        return sum(_expanded(column.field(i)) for i in range(kind.num_fields))
    if types.is_map(kind):
        return _expanded(column.keys) + _expanded(column.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _expanded(column.values)
    if types.is_nested(kind):
        raise ValueError(f"type {kind} is not supported")
    return len(column) * _expanding_width(column)


def _longest(values: pa.Array) -> int:
    """The bytes of the longest of some values."""
    kind, types = values.type, pa.types
    if not len(values):
        return 0
    if types.is_string_view(kind) or types.is_binary_view(kind):
        lengths = np.frombuffer(values.buffers()[1], np.int32).reshape(-1, 4)[values.offset :, 0]
        return int(lengths[: len(values)].max())
    if types.is_nested(kind) or types.is_dictionary(kind):
        return int(values.get_total_buffer_size() + _expanded(values))
    if types.is_boolean(kind):
        return 1
    if types.is_null(kind):
        return _NULL_BYTES
    return int(pc.max(pc.binary_length(values)).as_py() or 0) if _is_bytes(kind) else -(-kind.bit_width // 8)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )
