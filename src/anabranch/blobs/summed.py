"""Which bytes of a Parquet file its checksum is one over: all of them, or of some attached files the footer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.blobs.keys import is_summed_by_footer
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4


def file_checksum(key: str, data: pa.Buffer) -> int:
    """The checksum of the file `key`, as its extents carry it. Raises CorruptBlob where a footer is cut off."""
    return checksum(footer(key, data) if is_summed_by_footer(key) else data)


def footer(name: str, data: pa.Buffer) -> pa.Buffer:
    """The end of a Parquet file, or of its last bytes: the footer, its length and the closing mark. Raises CorruptBlob
    where that is not all there."""
    tail = data.slice(max(0, data.size - _LENGTH_BYTES - len(_MAGIC))).to_pybytes()
    if not tail.endswith(_MAGIC):
        raise CorruptBlob(name, "no Parquet file, or one that was cut short")
    size = int.from_bytes(tail[:_LENGTH_BYTES], "little") + len(tail)
    if size > data.size:
        raise CorruptBlob(name, "its footer is cut short")
    return data.slice(data.size - size)
