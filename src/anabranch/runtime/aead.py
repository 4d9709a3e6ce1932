"""XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM with nonces so long that random ones never repeat.

The first half of each 192-bit nonce derives an AES-256-GCM key; so one key may seal 2^80 messages, where plain
AES-256-GCM with random nonces should stop at 2^32. Needs the library `cryptography`.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

__all__ = ["KEY_BYTES", "NONCE_BYTES", "TAG_BYTES", "InvalidTag", "open_box", "seal_box"]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16

_REDUCE: Final = 0x87  # reduces in the field that CMAC doubles in
_BLOCK: Final = 16


def seal_box(key: bytes, nonce: bytes, message: bytes | memoryview, bound: bytes) -> bytes:
    """Encrypt a message, with a tag over it and `bound`. A nonce must never be used twice with one key."""
    return AESGCM(_derive(key, nonce)).encrypt(nonce[12:], message, bound)


def open_box(key: bytes, nonce: bytes, sealed: bytes | memoryview, bound: bytes) -> bytes:
    """Decrypt a message. Raises InvalidTag unless key, nonce, bytes and `bound` are those it was sealed with."""
    return AESGCM(_derive(key, nonce)).decrypt(nonce[12:], sealed, bound)


def _derive(key: bytes, nonce: bytes) -> bytes:
    # Each CMAC is over one block: a complete block is masked with the doubled encryption of zeros.
    assert len(key) == KEY_BYTES
    assert len(nonce) == NONCE_BYTES
    aes = Cipher(AES256(key), ECB()).encryptor()
    zeros = int.from_bytes(aes.update(bytes(_BLOCK)), "big")
    mask = (zeros << 1) & ((1 << 128) - 1)
    if zeros >> 127:
        mask ^= _REDUCE
    blocks = (bytes((0, counter, ord("X"), 0)) + nonce[:12] for counter in (1, 2))
    return aes.update(b"".join((int.from_bytes(block, "big") ^ mask).to_bytes(_BLOCK, "big") for block in blocks))
