"""Interfaces for encryption at rest: a service that keeps master keys, and a sealer for the store's bytes.

Nothing here needs the encryption library, so an unencrypted store never loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class KeyService(Protocol):
    """Keeps master keys; with an external service they never leave it. Thread-safe. Called rarely: once for each data
    key that a process uses, not for each event."""

    @property
    def current(self) -> str:
        """The id of the master key that new data keys are wrapped with: 1 to 64 of `A–Z a–z 0–9 _ - .`."""

    def wrap(self, key_id: str, secret: bytes) -> bytes:
        """Encrypt a data key. Raises KeyMissing; StoreUnavailable if the service can't be reached."""

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """The inverse of `wrap`. Raises KeyMissing, WrongKey; StoreUnavailable if the service can't be reached."""


class Sealer(Protocol):
    """Seals messages into boxes. Each box can be opened alone, but only at the place it was sealed for. Thread-safe."""

    def size(self, length: int) -> int:
        """The size of a box around `length` bytes, in bytes."""

    def seal(self, message: pa.Buffer, context: bytes) -> pa.Buffer:
        """A box under the current data key; sealing the same message twice gives different boxes."""

    def unseal(self, box: pa.Buffer, context: bytes, name: str) -> pa.Buffer:
        """The message of a box. Raises CorruptBlob, naming `name`, if it is damaged, is not a box, or was sealed for
        another place; KeyMissing, WrongKey."""

    def envelope(self) -> Mapping[str, str]:
        """The current data key as a blob's index names it: its id, its master key's id, and the wrapped key."""

    def file_encryption(self, key: str) -> Any:
        """Properties with which pyarrow encrypts the Parquet file for the blob `key`; for one file only."""

    def file_decryption(self, key: str) -> Any:
        """Properties with which pyarrow opens the Parquet file `key`; opening raises what `unseal` raises."""
