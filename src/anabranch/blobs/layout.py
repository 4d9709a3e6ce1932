"""Writes and reads the layout of a tier-1 blob, which `docs/explanation/formats.md` specifies.

0   8  magic  b"ANABRNCH"
8   2  format version, little-endian
10  1  encoding: 1 = Arrow record batch messages
11  1  cipher: 0 = none; 1 = each message is in its own box (`blobs.envelope`), the index is not encrypted
12  4  length of the index in bytes
16  8  xxh3-64 of everything after the header (index, padding and messages)
24  8  length of the whole blob
32     index: JSON that names the commit, schemas and parts
…      zero padding to 64 bytes, then the parts' messages, each padded to 64 bytes
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import xxhash

from anabranch.blobs.encryption_contexts import blob_context
from anabranch.core.checksum import checksum
from anabranch.core.json_text import parse_count, parse_object
from anabranch.errors import CorruptBlob, FormatTooNew
from anabranch.runtime.sealing import Sealer

MAGIC: Final = b"ANABRNCH"
VERSION: Final = 1
ALIGN: Final = 64  # Arrow needs aligned buffers to read a mapped blob without a copy
_HEADER: Final = struct.Struct("<8sHBBIQQ")
HEADER_BYTES: Final = _HEADER.size
_ARROW: Final = 1
_NO_CIPHER: Final = 0
_BOXES: Final = 1
_WIDEST: Final = -(1 << 63)  # the checksum with the longest text


@dataclass(frozen=True, slots=True)
class FramedBlob:
    """A blob ready to be written: its chunks in order and its size in bytes; for each stored message its offset, length
    and checksum."""

    chunks: list[pa.Buffer | bytes]
    offsets: list[int]
    lengths: list[int]
    checksums: list[int]
    size: int


def frame(
    index: dict[str, Any],
    parts: Sequence[dict[str, Any]],
    messages: Sequence[pa.Buffer],
    *,
    key: str = "",
    sealer: Sealer | None = None,
) -> FramedBlob:
    """Lay out messages after a header and an index. `parts[i]` describes `messages[i]`; its entry in the index also
    gets the message's place (`at`, `length`).

    A part's `checksum` is the checksum of its message. A `sealer` encrypts each message into a box for its place in the
    blob `key`; then `checksum` is the checksum of the box."""
    if sealer is None:
        return _assemble(index, _with_offsets(parts, [message.size for message in messages]), messages, _NO_CIPHER)
    entries = _with_offsets(parts, [sealer.size(message.size) for message in messages])
    index = {**index, "key": sealer.envelope()}
    # A box is sealed for its place, which depends on the length of the index, which holds the box's checksum. So the
    # index reserves room for the longest checksum.
    index_bytes = len(_text(index, [{**entry, "checksum": _WIDEST} for entry in entries]))
    base = _padded(_HEADER.size + index_bytes)
    boxes = []
    for entry, message in zip(entries, messages, strict=True):
        box = sealer.seal(message, blob_context(key, base + int(entry["at"])))
        assert box.size == entry["length"]
        entry["checksum"] = checksum(box)
        boxes.append(box)
    return _assemble(index, entries, boxes, _BOXES, index_bytes)


def _with_offsets(parts: Sequence[dict[str, Any]], lengths: Sequence[int]) -> list[dict[str, Any]]:
    # Places are relative to the end of the index, so that the index does not depend on its own length.
    relative, entries = 0, []
    for part, length in zip(parts, lengths, strict=True):
        entries.append({**part, "at": relative, "length": length})
        relative += _padded(length)
    return entries


def _text(index: dict[str, Any], entries: Sequence[dict[str, Any]]) -> bytes:
    return json.dumps({**index, "parts": entries}, separators=(",", ":")).encode()


def _assemble(
    index: dict[str, Any],
    entries: list[dict[str, Any]],
    messages: Sequence[pa.Buffer],
    cipher: int,
    index_bytes: int = 0,
) -> FramedBlob:
    text = _text(index, entries).ljust(index_bytes)
    base = _padded(_HEADER.size + len(text))
    body: list[pa.Buffer | bytes] = [text + bytes(base - _HEADER.size - len(text))]
    offsets, size = [], base
    for message in messages:
        offsets.append(size)
        body.append(message)
        if gap := _padded(message.size) - message.size:
            body.append(bytes(gap))
        size += _padded(message.size)
    digest = xxhash.xxh3_64()
    for chunk in body:
        digest.update(chunk)
    header = _HEADER.pack(MAGIC, VERSION, _ARROW, cipher, len(text), digest.intdigest(), size)
    lengths = [message.size for message in messages]
    return FramedBlob([header, *body], offsets, lengths, [entry["checksum"] for entry in entries], size)


def read_index(key: str, blob: pa.Buffer, *, verify: bool = True) -> dict[str, Any]:
    """The index of a whole blob, with absolute places of the parts. It is never encrypted. Raises CorruptBlob,
    FormatTooNew."""
    if blob.size < _HEADER.size:
        raise CorruptBlob(key, f"{blob.size} bytes are too few for a header")
    magic, version, encoding, cipher, length, digest, size = _HEADER.unpack(blob.slice(0, _HEADER.size).to_pybytes())
    if magic != MAGIC:
        raise CorruptBlob(key, "it does not begin with the header of a blob")
    if version < 1:
        raise CorruptBlob(key, f"unknown format {version}")
    if version > VERSION or encoding != _ARROW or cipher not in (_NO_CIPHER, _BOXES):
        raise FormatTooNew(f"blob {key}", version, VERSION)
    if size != blob.size:
        raise CorruptBlob(key, f"it holds {blob.size} bytes, not {size}")
    if length > size - _HEADER.size:
        raise CorruptBlob(key, "its index is longer than the blob")
    if verify and xxhash.xxh3_64_intdigest(blob.slice(_HEADER.size)) != digest:
        raise CorruptBlob(key, "its checksum does not match its bytes")
    try:
        index = parse_object(blob.slice(_HEADER.size, length).to_pybytes())
        _place_parts(index, _padded(_HEADER.size + length), size)
    except (KeyError, TypeError, ValueError) as exc:
        raise CorruptBlob(key, f"its index can't be read ({exc!r})") from exc
    if (cipher == _BOXES) != ("key" in index):
        raise CorruptBlob(key, "its header and its index disagree on whether it is encrypted")
    return index


def messages_begin(key: str, head: pa.Buffer) -> int:
    """Where the messages of a blob begin; `head` are its first `HEADER_BYTES`. Raises CorruptBlob."""
    if head.size < _HEADER.size:
        raise CorruptBlob(key, f"it has {head.size} bytes, fewer than a header")
    return _padded(_HEADER.size + int(_HEADER.unpack(head.to_pybytes())[4]))


def _place_parts(index: dict[str, Any], base: int, size: int) -> None:
    """Make the parts' places absolute. Raises ValueError if one is outside the blob."""
    for part in index["parts"]:
        part["at"] = base + parse_count(part["at"])
        if part["at"] + parse_count(part["length"]) > size:
            raise ValueError("a part reaches beyond the blob")


def _padded(length: int) -> int:
    return -(-length // ALIGN) * ALIGN
