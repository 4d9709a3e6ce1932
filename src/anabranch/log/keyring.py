"""The data keys of an encrypted store. The catalog keeps them, each wrapped with a master key.

Bytes are sealed with data keys alone. So another master key takes over by wrapping the data keys anew: no blob is
written again, and the old master key is needed no more.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from anabranch.blobs.envelope import DataKey
from anabranch.catalog.port import Catalog, Reading
from anabranch.errors import Conflict, InvalidArgument, WrongKey
from anabranch.log.data_keys import KIND, Row, from_piece, newest, to_piece
from anabranch.model.ids import LogId, Micros
from anabranch.runtime.aead import KEY_BYTES
from anabranch.runtime.ports import Runtime
from anabranch.runtime.sealing import KeyService

_CHECKED: Final = b"anabranch data key check"
_ID_BITS: Final = 64
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did: the master key that wraps all data keys now, how many were wrapped with another before, and
    the data key that seals new bytes."""

    master: str
    rewrapped: int
    data_key: str


class Keyring:
    """`blobs.envelope.DataKeys` from a catalog. Keys are unwrapped when they are first needed, and kept."""

    def __init__(self, catalog: Catalog, service: KeyService, runtime: Runtime, current: DataKey) -> None:
        self._catalog = catalog
        self._service = service
        self._runtime = runtime
        self._current = current
        self._known = {current.id: current}

    @property
    def current(self) -> DataKey:
        """See `DataKeys`. The newest as of the store's opening or its last rotation by this object."""
        return self._current

    def find(self, key_id: str) -> DataKey | None:
        """See `DataKeys`."""
        known = self._known.get(key_id)
        if known is None:
            with self._catalog.reading() as snapshot:
                piece = snapshot.piece(KIND, key_id)
            if piece is None:
                return None
            known = self._known[key_id] = _unwrap(self._service, from_piece(piece))
        return known

    def rotate(self) -> Rotation:
        """Wrap every data key with the service's current master key, and make a new one, with which this object seals
        from now on and others once they open the store. Durable. Raises KeyMissing, WrongKey, StoreUnavailable,
        Conflict where others keep rotating."""
        for _ in range(_TRIES):
            with self._catalog.reading() as snapshot:
                pieces = snapshot.pieces(KIND)
            master = self._service.current
            rows = [from_piece(piece) for piece in pieces]
            changed = [self._rewrap(row, master) for row in rows if row.master != master]
            # Later than all there are, whatever the clock says.
            at = max([self._runtime.clock.now(), *(row.created_at + 1 for row in rows)])
            fresh, made = _make(self._service, self._runtime, Micros(at))
            # The service may be slow, so it was asked outside; meanwhile nobody else may have rotated.
            with self._catalog.writing() as txn:
                if txn.pieces(KIND) != pieces:
                    continue
                for row in (*changed, made):
                    txn.put_piece(to_piece(row))
            self._current = self._known[fresh.id] = fresh
            return Rotation(master, len(changed), fresh.id)
        raise Conflict("the keys of this store are being rotated by somebody else")

    def _rewrap(self, row: Row, master: str) -> Row:
        secret = _unwrap(self._service, row).secret
        return Row(row.id, master, self._service.wrap(master, secret), row.check, row.created_at)


def open_keyring(catalog: Catalog, service: KeyService, runtime: Runtime) -> Keyring:
    """The keyring of an encrypted store. A store in which there has never been a scope is encrypted from now on.

    Raises KeyMissing, WrongKey; InvalidArgument for a store that holds events in the clear.
    """
    with catalog.reading() as snapshot:
        pieces = snapshot.pieces(KIND)
    if not pieces:
        key, row = _make(service, runtime, runtime.clock.now())
        with catalog.writing() as txn:
            pieces = txn.pieces(KIND)
            if not pieces:
                if not _unused(txn):
                    raise InvalidArgument(
                        "this store is not encrypted, and its events stay as they are: open it without keys, or make a new store with keys"
                    )
                txn.put_piece(to_piece(row))
        if not pieces:
            return Keyring(catalog, service, runtime, key)
    return Keyring(catalog, service, runtime, _unwrap(service, newest(map(from_piece, pieces))))


def _unused(reading: Reading) -> bool:
    return not reading.scopes() and not reading.streams(limit=1) and not reading.logs_after(LogId(0), 1)


def _make(service: KeyService, runtime: Runtime, now: Micros) -> tuple[DataKey, Row]:
    name = f"{runtime.ids.bits(_ID_BITS):0{_ID_BITS // 4}x}"
    secret = runtime.ids.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big")
    master = service.current
    wrapped = service.wrap(master, secret)
    return DataKey(name, secret, master, wrapped), Row(name, master, wrapped, _check(secret), now)


def _unwrap(service: KeyService, row: Row) -> DataKey:
    secret = service.unwrap(row.master, row.wrapped)
    # A service may hand out something for any bytes; what it did is told here.
    if not hmac.compare_digest(_check(secret), row.check):
        raise WrongKey(row.master)
    return DataKey(row.id, secret, row.master, row.wrapped)


def _check(secret: bytes) -> str:
    return hmac.digest(secret, _CHECKED, "sha256").hex()
