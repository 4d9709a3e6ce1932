"""Signatures of deployed queries, and the public keys whose signatures a store accepts.

A signature is one of the statements, the values of their parameters and the files of a version, by Ed25519. Its text is
`ed25519:KEY:SIGNATURE`, both in base64. Once the store has a trusted key, a query is deployed and run only with a
signature by a trusted key."""

from __future__ import annotations

import base64
import binascii
import builtins
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.query_version import TRUSTED_KEY, QueryFile, QueryVersion, TrustedKey
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument, PermissionDenied
from anabranch.errors.optional import optional
from anabranch.model.ids import Micros
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result

__all__ = ["TrustedKeys", "check_signed", "sign_query", "signed_message"]

_SCHEME: Final = "ed25519"
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_TEXT_CHARS_MAX: Final = 1_000  # of a signature, with whitespace around it
_LABEL_CHARS_MAX: Final = 100


class _Signature(NamedTuple):
    key: bytes
    signature: bytes


def signed_message(text: str, parameters: Mapping[str, str], files: Sequence[QueryFile]) -> bytes:
    """What is signed: the statements, the values of parameters, and the names and contents of files."""
    parts = [text, dict(parameters), {file.name: file.digest for file in files}]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return f"anabranch query 1\n{digest}\n".encode()


def sign_query(
    key_file: str | os.PathLike[str], text: str, parameters: Mapping[str, str], files: Sequence[QueryFile]
) -> str:
    """The signature by the private key of a PEM file. Raises InvalidArgument, MissingExtra."""
    with optional("signatures", "encryption"):
        from anabranch.runtime.signing import sign
    made = sign(key_file, signed_message(text, parameters, files))
    return ":".join((_SCHEME, *(base64.b64encode(each).decode() for each in made)))


def check_signed(txn: Reading, version: QueryVersion) -> None:
    """Raises PermissionDenied if the store has trusted keys, and none of them signed this version; InvalidArgument for a
    text that is not a signature; MissingExtra."""
    trusted = {key for key, _ in txn.states(TRUSTED_KEY)}
    found = None if version.signature is None else _parsed(version.signature)
    if not trusted:
        return
    name, what = version.query, f"version {version.number}"
    if found is None:
        raise PermissionDenied(
            f"{what} of query '{name}' is not signed, and this store accepts only signed queries; sign it with: anabranch queries sign"
        )
    if found.key.hex() not in trusted:
        raise PermissionDenied(
            f"{what} of query '{name}' is signed by the key {found.key.hex()[:16]}…, which this store does not trust; "
            "list the trusted keys with: anabranch queries trust"
        )
    with optional("signatures", "encryption"):
        from anabranch.runtime.signing import is_signed
    if not is_signed(found.key, found.signature, signed_message(version.text, version.parameters, version.files)):
        raise PermissionDenied(
            f"the signature of {what} of query '{name}' does not match its statements, parameters and files: sign them again"
        )


def _parsed(text: str) -> _Signature:
    scheme, *parts = text[:_TEXT_CHARS_MAX].strip().split(":")
    try:
        key, signature = (base64.b64decode(part, validate=True) for part in parts)
    except (binascii.Error, ValueError):
        key = signature = b""
    if len(text) > _TEXT_CHARS_MAX or scheme != _SCHEME or len(key) != _KEY_BYTES or len(signature) != _SIGNATURE_BYTES:
        raise InvalidArgument(f"'{text:.40}' is not a signature: expected the text that anabranch queries sign writes")
    return _Signature(key, signature)


class TrustedKeys(Displayed):
    """The public keys whose signatures a store accepts on queries. They can be changed only where the store itself is
    opened, not through a broker."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def list(self) -> builtins.list[TrustedKey]:
        """All trusted keys."""
        with self._changes.catalog.reading() as txn:
            return [row for _, row in txn.states(TRUSTED_KEY)]

    def add(self, key: bytes, label: str) -> TrustedKey:
        """Trust a public key of 32 bytes. From the first key on, unsigned queries no longer start. Raises
        InvalidArgument."""
        if len(key) != _KEY_BYTES:
            raise InvalidArgument(f"expected an Ed25519 public key of {_KEY_BYTES} bytes, got {len(key)}")
        if not label or len(label) > _LABEL_CHARS_MAX or not label.isprintable():
            raise InvalidArgument(f"expected a label of 1 to {_LABEL_CHARS_MAX} printable characters for the key")
        made: builtins.list[TrustedKey] = []

        def change(txn: Writing, now: Micros) -> Result:
            if txn.state(TRUSTED_KEY, key.hex()) is None and len(txn.states(TRUSTED_KEY)) >= limits.TRUSTED_KEYS_MAX:
                raise InvalidArgument(f"the store already trusts {limits.TRUSTED_KEYS_MAX} keys, the limit")
            made.append(TrustedKey(key.hex(), label, now))
            txn.put_state(TRUSTED_KEY, key.hex(), made[-1])
            return {}

        self._changes.apply(f"trust key {key.hex()}", None, change)
        return made[-1]

    def remove(self, key: str) -> TrustedKey:
        """Stop trusting a key; `key` is its first hex digits, or its label. Returns the removed key. Raises
        InvalidArgument unless exactly one key matches."""
        gone: builtins.list[TrustedKey] = []

        def change(txn: Writing, now: Micros) -> Result:
            rows = [row for _, row in txn.states(TRUSTED_KEY)]
            meant = [row for row in rows if row.label == key or row.key.startswith(key.lower())]
            if len(meant) != 1 or not key:
                raise InvalidArgument(
                    f"'{key:.100}' matches {len(meant)} of the {len(rows)} trusted keys: expected one"
                )
            txn.drop_state(TRUSTED_KEY, meant[0].key)
            gone[:] = meant
            return {}

        self._changes.apply(f"distrust key {key}", None, change)
        return gone[0]
