"""The layout of a tier-1 blob. `docs/FORMATS.md` is the contract; this file is its code.

0   8  magic  b"ANABRNCH"
8   2  format version, little-endian
10  1  encoding: 1 = Arrow record batch messages
11  1  cipher: 0 = none
12  4  length of the index in bytes
16  8  xxh3-64 of everything behind the header (index, padding and messages)
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

from anabranch.errors import CorruptBlob, FormatTooNew

MAGIC: Final = b"ANABRNCH"
VERSION: Final = 1
ALIGN: Final = 64  # Arrow wants its buffers aligned, so that a mapped blob is read without a copy
_HEADER: Final = struct.Struct("<8sHBBIQQ")
_ARROW: Final = 1
_NO_CIPHER: Final = 0


@dataclass(frozen=True, slots=True)
class Framed:
    """A blob ready to be written: its chunks in order, the offset of each message, and the whole length in bytes."""

    chunks: list[pa.Buffer | bytes]
    offsets: list[int]
    size: int


def frame(index: dict[str, Any], parts: Sequence[dict[str, Any]], messages: Sequence[pa.Buffer]) -> Framed:
    """Lay out messages behind a header and an index. `parts[i]` describes `messages[i]`; its place is added to it."""
    # Places are counted from the end of the index, so that the index does not depend on its own length.
    relative, entries = 0, []
    for part, message in zip(parts, messages, strict=True):
        entries.append({**part, "at": relative, "length": message.size})
        relative += _padded(message.size)
    text = json.dumps({**index, "parts": entries}, separators=(",", ":")).encode()
    base = _padded(_HEADER.size + len(text))
    body: list[pa.Buffer | bytes] = [text + bytes(base - _HEADER.size - len(text))]
    offsets = []
    for entry, message in zip(entries, messages, strict=True):
        offsets.append(base + int(entry["at"]))
        body.append(message)
        if gap := _padded(message.size) - message.size:
            body.append(bytes(gap))
    digest = xxhash.xxh3_64()
    for chunk in body:
        digest.update(chunk)
    size = base + relative
    header = _HEADER.pack(MAGIC, VERSION, _ARROW, _NO_CIPHER, len(text), digest.intdigest(), size)
    return Framed([header, *body], offsets, size)


def read_index(key: str, blob: pa.Buffer, *, verify: bool = True) -> dict[str, Any]:
    """The index of a whole blob, parts with absolute places. Raises CorruptBlob, FormatTooNew."""
    if blob.size < _HEADER.size:
        raise CorruptBlob(key, f"{blob.size} bytes are too few for a header")
    magic, version, encoding, cipher, length, digest, size = _HEADER.unpack(blob.slice(0, _HEADER.size).to_pybytes())
    if magic != MAGIC:
        raise CorruptBlob(key, "it does not begin as a blob of this store")
    if version < 1:
        raise CorruptBlob(key, f"there never was a format {version}")
    if version > VERSION or encoding != _ARROW or cipher != _NO_CIPHER:
        raise FormatTooNew(f"blob {key}", version, VERSION)
    if size != blob.size:
        raise CorruptBlob(key, f"it holds {blob.size} bytes, not {size}")
    if length > size - _HEADER.size:
        raise CorruptBlob(key, "its index is longer than itself")
    if verify and xxhash.xxh3_64_intdigest(blob.slice(_HEADER.size)) != digest:
        raise CorruptBlob(key, "its checksum does not match its bytes")
    try:
        index: dict[str, Any] = json.loads(blob.slice(_HEADER.size, length).to_pybytes())
    except ValueError as exc:
        raise CorruptBlob(key, "its index is no JSON") from exc
    base = _padded(_HEADER.size + length)
    for part in index["parts"]:
        part["at"] += base
    return index


def _padded(length: int) -> int:
    return -(-length // ALIGN) * ALIGN
