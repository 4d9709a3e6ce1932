"""The digest that each row of the catalog carries. Rows are compared with it before they are decoded.

Where the database can compute digests (PostgreSQL), statements return whether it matches instead of the digest.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any, Final

import xxhash

from anabranch.errors import CorruptCatalog

_SIGN_BIT: Final = 1 << 63
_MODULUS: Final = 1 << 64
_FORMAT: Final = 2  # later formats write an object that occurs twice only once, so equal rows could differ
_marshal: Final = marshal.dumps
_hash: Final = xxhash.xxh3_64_intdigest


def row_digest(values: tuple[Any, ...]) -> int:
    """The xxh3-64 (seed 0) of the tuple of values as `marshal` format 2 writes it, as a signed 64-bit integer.
    docs/explanation/formats.md describes that format. Booleans are 0 and 1, as SQLite stores them.

    Every commit computes three digests and verifies two, and a read verifies one for each extent, so speed matters:
    `marshal` takes a third of the time of any text format.
    """
    try:
        digest = _hash(_marshal(values, _FORMAT))
    except ValueError:  # a subclass of int, str or bytes
        digest = _hash(_marshal(tuple(map(_plain, values)), _FORMAT))
    return digest - _MODULUS if digest >= _SIGN_BIT else digest


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    return bytes(value) if isinstance(value, bytes) else value


def verify(table: str, values: Sequence[Any], digest: Any, *, key: int = 1) -> None:
    """Raise CorruptCatalog, which names the first `key` values, if a row's values do not match its digest. `digest` is
    the row's digest, or a bool: whether the database found that it matches."""
    if digest is True or (digest is not False and digest == row_digest(tuple(values))):
        return
    raise damaged(table, values[:key])


def damaged(table: str, key: Sequence[Any]) -> CorruptCatalog:
    """The error for a row whose values do not match its digest."""
    shown = ", ".join(str(value) for value in key)
    return CorruptCatalog(
        f"row ({shown}) of the catalog's table {table} was damaged: its values do not match its digest", table, shown
    )
