"""Ed25519 signatures, with keys in PEM files as created by `openssl genpkey -algorithm ed25519`. Needs the library
`cryptography`."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.runtime.bounded_files import read_bounded
from anabranch.runtime.folders import expand_home

__all__ = ["Signature", "is_signed", "public_key", "sign"]


class Signature(NamedTuple):
    """A signature of 64 bytes, and the public key of 32 bytes that verifies it."""

    public_key: bytes
    signature: bytes


def sign(key_file: str | os.PathLike[str], message: bytes) -> Signature:
    """Sign with the private key of a PEM file. Raises InvalidArgument if it can't be read, is not an Ed25519 key, or
    all users of the machine may open it."""
    data = _read(key_file, private=True)
    try:
        key = load_pem_private_key(data, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as exc:
        raise InvalidArgument(f"{os.fspath(key_file)} is not a private key in PEM format without a password") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidArgument(f"{os.fspath(key_file)} holds a private key, but not an Ed25519 key")
    return Signature(key.public_key().public_bytes_raw(), key.sign(message))


def public_key(key_file: str | os.PathLike[str]) -> bytes:
    """The 32 bytes of the public key of a PEM file. Raises InvalidArgument."""
    data = _read(key_file, private=False)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise InvalidArgument(f"{os.fspath(key_file)} is not a public key in PEM format") from exc
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidArgument(f"{os.fspath(key_file)} holds a public key, but not an Ed25519 key")
    return key.public_bytes_raw()


def is_signed(key: bytes, signature: bytes, message: bytes) -> bool:
    """True if the signature of the message is valid for the public key."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _read(path: str | os.PathLike[str], *, private: bool) -> bytes:
    def check(status: os.stat_result) -> None:
        if private and status.st_mode & stat.S_IRWXO:
            raise InvalidArgument(
                f"all users may read the private key {os.fspath(path)}; restrict it with: chmod 600 {os.fspath(path)}"
            )

    try:
        return read_bounded(expand_home(path), limits.KEY_FILE_BYTES_MAX, check=check)
    except OSError as exc:
        raise InvalidArgument(f"the key file {os.fspath(path)} can't be read: {exc.strerror}") from exc
