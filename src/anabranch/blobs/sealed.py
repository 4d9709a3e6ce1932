"""Where a sealed message belongs, and opening what an extent holds. In a store in the clear both cost nothing.

A message is sealed for its place, so a box that was moved does not open: one in a blob for the blob's key and its
first byte there, an inlined one for its log. The catalog stays the authority for which places an extent names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.model.ids import LogId
from anabranch.model.stream import Extent
from anabranch.runtime.sealing import Sealer

if TYPE_CHECKING:
    import pyarrow as pa


def inlined_place(log: LogId) -> bytes:
    """The place of bytes that the catalog carries."""
    return f"inlined\0{log}".encode()


def blob_place(key: str, offset: int) -> bytes:
    """The place of a message that begins at byte `offset` of a blob."""
    return f"blob\0{key}\0{offset}".encode()


def file_place(key: str) -> bytes:
    """The place of the key of a whole Parquet file."""
    return f"file\0{key}".encode()


def unsealed(sealer: Sealer | None, extent: Extent, stored: pa.Buffer, name: str) -> pa.Buffer:
    """The message of an Arrow extent whose stored bytes are `stored`. Raises CorruptBlob, naming `name`; KeyMissing,
    WrongKey."""
    if sealer is None:
        return stored
    place = inlined_place(extent.log) if extent.key is None else blob_place(extent.key, extent.place.offset)
    return sealer.unseal(stored, place, name)
