"""The checksum of a Parquet file: over all its bytes, or over the footer only for some attached files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.blobs.keys import has_footer_checksum
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4


def file_checksum(key: str, data: pa.Buffer) -> int:
    """The checksum of the file `key`, as its extents carry it. Raises CorruptBlob if the footer is incomplete."""
    return checksum(footer(key, data) if has_footer_checksum(key) else data)


def footer(name: str, data: pa.Buffer) -> pa.Buffer:
    """The footer, its length and the closing magic bytes of a Parquet file. `data` is the file or its last bytes.
    Raises CorruptBlob if the footer is incomplete."""
    tail = data.slice(max(0, data.size - _LENGTH_BYTES - len(_MAGIC))).to_pybytes()
    if not tail.endswith(_MAGIC):
        raise CorruptBlob(name, "not a Parquet file, or an incomplete one")
    size = int.from_bytes(tail[:_LENGTH_BYTES], "little") + len(tail)
    if size > data.size:
        raise CorruptBlob(name, "its footer is incomplete")
    return data.slice(data.size - size)
