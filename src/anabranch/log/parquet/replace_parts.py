"""Replaces the list of parts in a Parquet file's metadata: a file that moves to another store holds rows of other logs.

Changes only the footer, and there only the value of one key; pyarrow can't do this without rewriting all pages. The
footer is a Thrift struct in the compact protocol; a key with its value is `18 <length> <key> 18 <length> <value>`,
where a length is a varint (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md; parquet.thrift, KeyValue).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import CorruptBlob
from anabranch.log.parquet.file_format import METADATA_KEY, VERSION
from anabranch.log.parquet.thrift import read_varint, write_varint

_MAGIC: Final = b"PAR1"
_STRING: Final = b"\x18"
_MARK: Final = _STRING + bytes([len(METADATA_KEY)]) + METADATA_KEY + _STRING


def with_parts(key: str, data: pa.Buffer, parts: Sequence[dict[str, Any]]) -> list[pa.Buffer | bytes]:
    """The file `data` with `parts` in its metadata, as chunks, without copying pages. Raises CorruptBlob, naming
    `key`."""
    if data.size < 12 or data.slice(data.size - 4).to_pybytes() != _MAGIC:
        raise CorruptBlob(key, "expected an unencrypted Parquet file, which ends with PAR1")
    length = int.from_bytes(data.slice(data.size - 8, 4).to_pybytes(), "little")
    begin = data.size - 8 - length
    if begin < 4:
        raise CorruptBlob(key, "its footer is longer than itself")
    footer = data.slice(begin, length).to_pybytes()
    at = footer.find(_MARK)
    if at < 0 or footer.find(_MARK, at + 1) >= 0:
        raise CorruptBlob(key, "its metadata does not name its parts")
    at += len(_MARK)
    try:
        size, start = read_varint(footer, at)
    except (IndexError, ValueError) as exc:
        raise CorruptBlob(key, f"its footer can't be read ({exc})") from exc
    if start + size > len(footer):
        raise CorruptBlob(key, "its metadata is cut short")
    text = json.dumps({"format": VERSION, "parts": parts}, separators=(",", ":")).encode()
    changed = bytearray(footer[:at])
    write_varint(changed, len(text))
    changed += text + footer[start + size :]
    return [data.slice(0, begin), bytes(changed), len(changed).to_bytes(4, "little"), _MAGIC]
