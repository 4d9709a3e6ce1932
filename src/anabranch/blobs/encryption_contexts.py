"""The places for which messages are encrypted, and the decryption of an extent's bytes. Free in an unencrypted store.

A message is sealed for its place, so a box that was moved can't be opened. The place of a message in a blob is the
blob's key and its first byte there; that of an inlined one is its log. Which place an extent refers to is up to the
catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.model.ids import LogId
from anabranch.model.stream import Extent
from anabranch.runtime.sealing import Sealer

if TYPE_CHECKING:
    import pyarrow as pa


def inline_context(log: LogId) -> bytes:
    """The place of bytes that are inlined in the catalog."""
    return f"inlined\0{log}".encode()


def blob_context(key: str, offset: int) -> bytes:
    """The place of a message that begins at byte `offset` of a blob."""
    return f"blob\0{key}\0{offset}".encode()


def file_context(key: str) -> bytes:
    """The place of the key of a whole Parquet file."""
    return f"file\0{key}".encode()


def decrypt_extent(sealer: Sealer | None, extent: Extent, stored: pa.Buffer, name: str) -> pa.Buffer:
    """The decrypted message of an Arrow extent whose stored bytes are `stored`. Raises CorruptBlob with `name`,
    KeyMissing, WrongKey."""
    if sealer is None:
        return stored
    place = inline_context(extent.log) if extent.key is None else blob_context(extent.key, extent.location.offset)
    return sealer.unseal(stored, place, name)
