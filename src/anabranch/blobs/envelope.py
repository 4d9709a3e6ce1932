"""Encrypts messages into boxes, and protects the keys of encrypted Parquet files.

The layout of a box, as `docs/explanation/formats.md` specifies it:

0    1  1: XAES-256-GCM
1    8  id of the data key
9   24  random nonce
33      the encrypted message
…   16  tag over it, the first nine bytes and the message's place
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch.blobs.encryption_contexts import file_context
from anabranch.core.json_text import parse_json
from anabranch.errors import CorruptBlob
from anabranch.runtime.aead import NONCE_BYTES, TAG_BYTES, InvalidTag, open_box, seal_box
from anabranch.runtime.ids import Ids

_VERSION: Final = b"\x01"
_ID_BYTES: Final = 8
_HEAD_BYTES: Final = len(_VERSION) + _ID_BYTES
_TEXT_AT: Final = _HEAD_BYTES + NONCE_BYTES


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that encrypts bytes. `id` is 16 hex digits, `secret` the 32 bytes of the key, `master` the id of the master
    key, and `wrapped` the key encrypted with that one, as the catalog stores it."""

    id: str
    secret: bytes = field(repr=False)
    master: str
    wrapped: bytes


class DataKeys(Protocol):
    """The data keys of a store. Thread-safe."""

    @property
    def current(self) -> DataKey:
        """The key that encrypts new bytes."""

    def find(self, key_id: str) -> DataKey | None:
        """A key by its id; None if the catalog has none. Raises KeyMissing, WrongKey."""


class Envelope:
    """`runtime.sealing.Sealer` with a store's data keys."""

    def __init__(self, keys: DataKeys, ids: Ids) -> None:
        self._keys = keys
        self._ids = ids

    def size(self, length: int) -> int:
        return _TEXT_AT + length + TAG_BYTES

    def seal(self, message: pa.Buffer, context: bytes) -> pa.Buffer:
        key = self._keys.current
        head = _VERSION + bytes.fromhex(key.id)
        nonce = self._ids.bits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        sealed = seal_box(key.secret, nonce, memoryview(message).cast("B"), head + context)
        return pa.py_buffer(b"".join((head, nonce, sealed)))

    def unseal(self, box: pa.Buffer, context: bytes, name: str) -> pa.Buffer:
        view = memoryview(box).cast("B")
        if len(view) < self.size(0) or bytes(view[: len(_VERSION)]) != _VERSION:
            raise CorruptBlob(name, "the store is encrypted, and these bytes are not")
        head, nonce = bytes(view[:_HEAD_BYTES]), bytes(view[_HEAD_BYTES:_TEXT_AT])
        key = self._keys.find(head[len(_VERSION) :].hex())
        if key is None:
            raise CorruptBlob(name, f"it names a data key that is not in the catalog: {head[1:].hex()}")
        try:
            return pa.py_buffer(open_box(key.secret, nonce, view[_TEXT_AT:], head + context))
        except InvalidTag as exc:
            raise CorruptBlob(name, "its encrypted bytes were changed, or were written at another place") from exc

    def envelope(self) -> Mapping[str, str]:
        key = self._keys.current
        return {"id": key.id, "master": key.master, "wrapped": base64.b64encode(key.wrapped).decode()}

    def file_encryption(self, key: str) -> Any:
        from anabranch.blobs.parquet_keys import encryption

        return encryption(lambda secret: self._wrap_file_key(secret, key), self._keys.current.id)

    def file_decryption(self, key: str) -> Any:
        from anabranch.blobs.parquet_keys import decryption

        return decryption(lambda text: self._unwrap_file_key(text, key))

    def _wrap_file_key(self, secret: bytes, key: str) -> str:
        box = self.seal(pa.py_buffer(secret), file_context(key)).to_pybytes()
        return json.dumps({**self.envelope(), "box": base64.b64encode(box).decode()})

    def _unwrap_file_key(self, text: str, key: str) -> bytes:
        try:
            box = base64.b64decode(parse_json(text)["box"], validate=True)
        except (KeyError, TypeError, ValueError) as exc:
            raise CorruptBlob(key, "its metadata does not hold its key") from exc
        secret: bytes = self.unseal(pa.py_buffer(box), file_context(key), key).to_pybytes()
        return secret
