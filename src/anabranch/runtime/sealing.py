"""What encryption at rest asks of others: a service that keeps master keys, and what seals the bytes of a store.

Nothing here needs the library that encrypts, so a store in the clear never loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class KeyService(Protocol):
    """Keeps master keys, which never leave it where it is a service of its own. Thread-safe; asked seldom: once for
    each data key that a process uses, never once for each event."""

    @property
    def current(self) -> str:
        """The id of the master key that new data keys are wrapped with: 1 to 64 of `A–Z a–z 0–9 _ - .`."""
        ...

    def wrap(self, key_id: str, secret: bytes) -> bytes:
        """Encrypt a data key. Raises KeyMissing; StoreUnavailable where the service can't be reached."""
        ...

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """The inverse of `wrap`. Raises KeyMissing, WrongKey; StoreUnavailable where the service can't be reached."""
        ...


class Sealer(Protocol):
    """Seals messages into boxes that can each be opened alone, at the place they were sealed for and at no other.
    Thread-safe."""

    def size(self, length: int) -> int:
        """The bytes of a box around `length` bytes."""
        ...

    def seal(self, message: pa.Buffer, place: bytes) -> pa.Buffer:
        """A box under the current data key; the same message never gives the same box twice."""
        ...

    def unseal(self, box: pa.Buffer, place: bytes, name: str) -> pa.Buffer:
        """The message of a box. Raises CorruptBlob, naming `name`, where the box is damaged, is none, or was sealed for
        another place; KeyMissing, WrongKey."""
        ...

    def envelope(self) -> Mapping[str, str]:
        """The current data key as a blob's index names it: its id, its master key's id, and itself, wrapped."""
        ...

    def file_encryption(self, key: str) -> Any:
        """Properties with which pyarrow encrypts the Parquet file that will be the blob `key`; for one file."""
        ...

    def file_decryption(self, key: str) -> Any:
        """Properties with which pyarrow opens the Parquet file `key`; opening raises what `unseal` raises."""
        ...
