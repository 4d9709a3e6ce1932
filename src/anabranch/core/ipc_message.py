"""Reads from the metadata of an encapsulated Arrow IPC message what decoding it would cost.

A compressed message may declare any size for each of its buffers, which Arrow allocates before it reads the bytes.
The store's own messages are never compressed, so a compressed one is refused without decoding it. For messages from
elsewhere, `claims_of` adds up what they declare. Sources: Arrow's format/Message.fbs and format/File.fbs, and the
FlatBuffers binary format.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_MARK_AND_LENGTH: Final = Struct("<iI")
_CONTINUED: Final = -1
_INT32: Final = Struct("<i")
_UINT32: Final = Struct("<I")
_UINT16: Final = Struct("<H")
_INT64: Final = Struct("<q")
_KIND: Final = 1  # of a Message: the type of its header
_HEADER: Final = 2  # of a Message: the table that says what kind of message it is
_IS_DICTIONARY, _IS_BATCH = 2, 3  # kinds of headers
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3  # of a RecordBatch
_ID, _DATA, _IS_DELTA = 0, 1, 2  # of a DictionaryBatch
_BUFFER: Final = Struct("<qq")  # offset and length in the body
_DICTIONARIES, _BATCHES = 2, 3  # of a Footer
_BLOCK: Final = Struct("<qi4xq")  # offset in the file, length of the metadata, length of the body


class Claims(NamedTuple):
    """What a message declares: its rows, and the bytes of its buffers once they are decompressed. `dictionary` is the
    id of the dictionary it defines, None for other messages; with `delta` it adds to that dictionary."""

    rows: int
    size: int
    dictionary: int | None = None
    delta: bool = False


class Block(NamedTuple):
    """Where a message is in an IPC file: its first byte, and the length of its prefix and metadata."""

    offset: int
    metadata_length: int


def refuse_compressed(message: pa.Buffer) -> None:
    """Raise ValueError if the buffers of a record batch are compressed, or the metadata is malformed."""
    view = memoryview(message)
    try:
        mark, length = _MARK_AND_LENGTH.unpack_from(view, 0)
        if mark != _CONTINUED or not 0 < length <= len(view) - _MARK_AND_LENGTH.size:
            raise ValueError("it is not an encapsulated message")
        start = _MARK_AND_LENGTH.size
        table = _table(view, start)
        batch = _child(view, table, _HEADER)
        if batch is None:
            raise ValueError("it is not a record batch")
        if _field(view, batch, _COMPRESSION) is not None:
            raise ValueError("its buffers are compressed, as this store never writes them")
    except error as exc:
        raise ValueError("its metadata is cut short") from exc


def claims_of(metadata: memoryview, body: memoryview) -> Claims:
    """What a message declares; `metadata` is its FlatBuffer, without the prefix. Raises ValueError if that is
    malformed."""
    try:
        message = _table(metadata, 0)
        kind, header = _field(metadata, message, _KIND), _child(metadata, message, _HEADER)
        if kind is None or header is None or metadata[kind] not in (_IS_DICTIONARY, _IS_BATCH):
            return Claims(0, 0)
        if metadata[kind] == _IS_BATCH:
            return Claims(*_batch_claims(metadata, header, body))
        data = _child(metadata, header, _DATA)
        if data is None:
            raise ValueError("its dictionary has no data")
        identity, delta = _int64(metadata, header, _ID), _field(metadata, header, _IS_DELTA)
        rows, size = _batch_claims(metadata, data, body)
        return Claims(rows, size, identity, delta is not None and bool(metadata[delta]))
    except (error, IndexError) as exc:
        raise ValueError("its metadata is cut short") from exc


def file_blocks(footer: memoryview) -> list[Block]:
    """The dictionaries and record batches that the footer of an IPC file lists. Raises ValueError if it is
    malformed."""
    try:
        root, found = _table(footer, 0), []
        for number in (_DICTIONARIES, _BATCHES):
            for at in _vector(footer, root, number, _BLOCK.size):
                offset, metadata_length, _ = _BLOCK.unpack_from(footer, at)
                found.append(Block(offset, metadata_length))
        return found
    except error as exc:
        raise ValueError("its footer is incomplete") from exc


def _batch_claims(metadata: memoryview, batch: int, body: memoryview) -> tuple[int, int]:
    """The rows of a RecordBatch, and the bytes of its decompressed buffers."""
    packed = _field(metadata, batch, _COMPRESSION) is not None
    size = 0
    for at in _vector(metadata, batch, _BUFFERS, _BUFFER.size):
        offset, length = _BUFFER.unpack_from(metadata, at)
        # A compressed buffer begins with its decompressed size; -1 says that this buffer isn't compressed.
        claimed = _INT64.unpack_from(body, offset)[0] if packed and length and offset >= 0 else -1
        size += max(length if claimed == -1 else claimed, 0)
    return _int64(metadata, batch, _ROWS), size


def _table(view: memoryview, at: int) -> int:
    """The position of the table whose offset is stored at `at`."""
    position: int = at + _UINT32.unpack_from(view, at)[0]
    return position


def _child(view: memoryview, table: int, number: int) -> int | None:
    """The position of the table that a field of a table refers to."""
    at = _field(view, table, number)
    return None if at is None else _table(view, at)


def _int64(view: memoryview, table: int, number: int) -> int:
    at = _field(view, table, number)
    value: int = 0 if at is None else _INT64.unpack_from(view, at)[0]
    return value


def _vector(view: memoryview, table: int, number: int, size: int) -> range:
    """The positions of the elements of a vector of structs, `size` bytes each."""
    start = _child(view, table, number)
    if start is None:
        return range(0)
    first = start + _UINT32.size
    stop = first + size * _UINT32.unpack_from(view, start)[0]
    if stop > len(view):
        raise ValueError("its metadata refers to bytes outside of it")
    return range(first, stop, size)


def _field(view: memoryview, table: int, number: int) -> int | None:
    """The position of a field of a table, or None if the table does not have it."""
    fields = table - _INT32.unpack_from(view, table)[0]
    if fields < 0:
        raise ValueError("its metadata refers to bytes outside of it")
    at = 4 + 2 * number
    if at + 2 > _UINT16.unpack_from(view, fields)[0]:
        return None
    offset: int = _UINT16.unpack_from(view, fields + at)[0]
    return table + offset if offset else None
