"""The keys of Parquet files as pyarrow asks for them. The format is Parquet's own modular encryption.

Every file has a key of its own, drawn by pyarrow; the file's footer carries it, sealed by the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.parquet.encryption as pe

_WHOLE_KEY_BITS = 256


class _Client(pe.KmsClient):  # type: ignore[misc] # pyarrow ships no types
    """What pyarrow takes for a key-management service."""

    def __init__(self, lock_up: Callable[[bytes], str] | None, take_out: Callable[[str], bytes] | None) -> None:
        super().__init__()
        self._lock_up = lock_up
        self._take_out = take_out

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """The file's key, sealed."""
        assert self._lock_up is not None
        return self._lock_up(key_bytes).encode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        """The file's key."""
        assert self._take_out is not None
        return self._take_out(wrapped_key)


def encryption(lock_up: Callable[[bytes], str], key_id: str) -> Any:
    """Properties for one new file: all of it, its footer too, under AES-256-GCM. `lock_up` seals the file's key."""
    configuration = pe.EncryptionConfiguration(
        footer_key=key_id,
        uniform_encryption=True,
        encryption_algorithm="AES_GCM_V1",
        plaintext_footer=False,
        double_wrapping=False,
        internal_key_material=True,
        data_key_length_bits=_WHOLE_KEY_BITS,
    )
    factory = pe.CryptoFactory(lambda _: _Client(lock_up, None))
    return factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)


def decryption(take_out: Callable[[str], bytes]) -> Any:
    """Properties for opening one file. `take_out` opens its sealed key; what it raises, opening the file raises."""
    factory = pe.CryptoFactory(lambda _: _Client(None, take_out))
    return factory.file_decryption_properties(pe.KmsConnectionConfig())
