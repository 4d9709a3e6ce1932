"""Master keys from a file or the environment: a `KeyService` for use without an external one.

The text holds one key per line, `<id> <32 bytes in base64>`. The first is current; the others open older data. Empty
lines and lines that begin with `#` are ignored.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument, KeyMissing, KeysUnreadable, WrongKey
from anabranch.runtime.aead import KEY_BYTES, NONCE_BYTES, InvalidTag, open_box, seal_box
from anabranch.runtime.bounded_files import read_bounded
from anabranch.runtime.folders import expand_home
from anabranch.runtime.ids import Ids

__all__ = ["MasterKeys", "check_key_id", "new_key_line", "open_keys", "parse_keys"]

FILE: Final = "file:"
ENVIRONMENT: Final = "env:"

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_OTHERS = stat.S_IRWXO


class MasterKeys:
    """A `KeyService` that holds its keys in memory: the first of `keys` is current. Wraps with XAES-256-GCM."""

    def __init__(self, keys: Mapping[str, bytes], ids: Ids) -> None:
        assert keys
        self._keys = dict(keys)
        self._ids = ids

    @property
    def current(self) -> str:
        return next(iter(self._keys))

    def wrap(self, key_id: str, secret: bytes) -> bytes:
        """See `KeyService`. Returns a nonce, the encrypted key and its tag."""
        nonce = self._ids.bits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        return nonce + seal_box(self._key(key_id), nonce, secret, _bound(key_id))

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        key = self._key(key_id)
        if len(wrapped) <= NONCE_BYTES:
            raise WrongKey(key_id)
        try:
            return open_box(key, wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _bound(key_id))
        except InvalidTag as exc:
            raise WrongKey(key_id) from exc

    def _key(self, key_id: str) -> bytes:
        key = self._keys.get(key_id)
        if key is None:
            raise KeyMissing(key_id)
        return key


def open_keys(place: str, ids: Ids) -> MasterKeys:
    """The keys of `file:/path` or `env:NAME`. Raises KeysUnreadable if they can't be read; InvalidArgument if they are malformed, or are in a
    file that all users of the machine may open."""
    if place.startswith(ENVIRONMENT):
        name = place.removeprefix(ENVIRONMENT)
        text = os.environ.get(name)
        if text is None:
            raise KeysUnreadable(f"the environment variable {name}, which should hold the keys, is not set")
        return MasterKeys(parse_keys(text, place), ids)
    if not place.startswith(FILE):
        # Not quoted: it may be a key.
        raise InvalidArgument("not an address of keys: expected file:/path, or env:NAME for a variable that holds them")
    return MasterKeys(parse_keys(_read(key_path(place)), place), ids)


def key_path(place: str) -> Path:
    """The file of `file:/path` or `file:///path`. Raises InvalidArgument."""
    path = place.removeprefix(FILE)
    return expand_home(path.removeprefix("//") if path.startswith("///") else path)


def _read(path: Path) -> str:
    def check(status: os.stat_result) -> None:
        if status.st_mode & _OTHERS:
            raise InvalidArgument(f"all users may read the key file {path}; restrict it with: chmod 600 {path}")

    try:
        return read_bounded(path, limits.KEY_FILE_BYTES_MAX, check=check).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not a text file"
        raise KeysUnreadable(f"the key file {path} can't be read: {why}") from exc


def parse_keys(text: str, place: str) -> dict[str, bytes]:
    """The keys of a text by id, the current one first. Raises InvalidArgument; no message quotes a key."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        here = f"{place}, line {number}"
        if len(words) != 2:
            raise InvalidArgument(f"{here}: expected two words, a key's id and its {KEY_BYTES} bytes in base64")
        key_id, coded = words
        if not _ID.match(key_id):  # not quoted: it may be a key in the wrong place
            raise InvalidArgument(f"{here}: the first word is not a key id; expected 1 to 64 of A–Z a–z 0–9 _ - .")
        try:
            key = base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise InvalidArgument(f"{here}: key '{key_id}' is not in base64") from exc
        if len(key) != KEY_BYTES:
            raise InvalidArgument(f"{here}: key '{key_id}' has {len(key)} bytes, not {KEY_BYTES}")
        if key_id in keys:
            raise InvalidArgument(f"{here}: a second key '{key_id}'")
        keys[key_id] = key
    if not keys:
        raise InvalidArgument(f"no key found in {place}")
    return keys


def check_key_id(key_id: str) -> None:
    """Raise InvalidArgument unless the text is a valid id of a master key."""
    if not _ID.match(key_id):
        raise InvalidArgument(f"'{key_id}' is not a key id: expected 1 to 64 of A–Z a–z 0–9 _ - .")


def new_key_line(key_id: str, ids: Ids) -> str:
    """A line with a newly generated key. Raises InvalidArgument."""
    check_key_id(key_id)
    return f"{key_id} {base64.b64encode(ids.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, 'big')).decode()}\n"


def _bound(key_id: str) -> bytes:
    return b"anabranch data key\0" + key_id.encode()
