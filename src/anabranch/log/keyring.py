"""The data keys of an encrypted store. The catalog keeps them, each wrapped with a master key.

Only data keys encrypt bytes. So to change the master key, the data keys are wrapped again: no blob is rewritten, and
the old master key is no longer needed.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from anabranch.blobs.envelope import DataKey
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.store import DATA_KEY, DataKeyRow, newest
from anabranch.errors import Conflict, InvalidArgument, WrongKey
from anabranch.model.ids import LogId, Micros
from anabranch.runtime.aead import KEY_BYTES
from anabranch.runtime.ports import Runtime
from anabranch.runtime.sealing import KeyService

_CHECKED: Final = b"anabranch data key check"
_ID_BITS: Final = 64
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rotation:
    """The result of a rotation: the master key that now wraps all data keys, how many keys were wrapped with another
    one before, and the data key that encrypts new bytes."""

    master: str
    rewrapped: int
    data_key: str


class Keyring:
    """`blobs.envelope.DataKeys`, read from a catalog. Keys are unwrapped when first needed, and cached."""

    def __init__(self, catalog: Catalog, service: KeyService, runtime: Runtime, current: DataKey) -> None:
        self._catalog = catalog
        self._service = service
        self._runtime = runtime
        self._current = current
        self._known = {current.id: current}

    @property
    def current(self) -> DataKey:
        """See `DataKeys`. The newest key as of the store's opening, or of the last rotation by this object."""
        return self._current

    def find(self, key_id: str) -> DataKey | None:
        known = self._known.get(key_id)
        if known is None:
            with self._catalog.reading() as snapshot:
                row = snapshot.state(DATA_KEY, key_id)
            if row is None:
                return None
            known = self._known[key_id] = _unwrap(self._service, row)
        return known

    def rotate(self) -> Rotation:
        """Wraps every data key with the service's current master key, and makes a new data key. This object encrypts
        with the new key from now on, other processes once they open the store. Durable. Raises KeyMissing, WrongKey,
        StoreUnavailable, and Conflict if others keep rotating."""
        for _ in range(_TRIES):
            with self._catalog.reading() as snapshot:
                states = snapshot.states(DATA_KEY)
            master = self._service.current
            rows = [row for _, row in states]
            changed = [self._rewrap(row, master) for row in rows if row.master != master]
            # Later than all existing keys, whatever the clock says.
            at = max([self._runtime.clock.now(), *(row.created_at + 1 for row in rows)])
            fresh, made = _make(self._service, self._runtime, Micros(at))
            # The service may be slow, so it was called outside the transaction. No other process may have rotated
            # since.
            with self._catalog.writing() as txn:
                if txn.states(DATA_KEY) != states:
                    continue
                for row in (*changed, made):
                    txn.put_state(DATA_KEY, row.id, row)
            self._current = self._known[fresh.id] = fresh
            return Rotation(master, len(changed), fresh.id)
        raise Conflict("the keys of this store are being rotated by another process: rotate them again once it is done")

    def _rewrap(self, row: DataKeyRow, master: str) -> DataKeyRow:
        secret = _unwrap(self._service, row).secret
        return DataKeyRow(row.id, master, self._service.wrap(master, secret), row.check, row.created_at)


def open_keyring(catalog: Catalog, service: KeyService, runtime: Runtime) -> Keyring:
    """The keyring of an encrypted store. A store that has never had a scope becomes encrypted.

    Raises KeyMissing, WrongKey, and InvalidArgument for a store that holds unencrypted events.
    """
    with catalog.reading() as snapshot:
        known = snapshot.states(DATA_KEY)
    if not known:
        key, row = _make(service, runtime, runtime.clock.now())
        with catalog.writing() as txn:
            known = txn.states(DATA_KEY)
            if not known:
                if not _unused(txn):
                    raise InvalidArgument(
                        "this store is not encrypted, and its events stay as they are: open it without keys, or make a new store with keys"
                    )
                txn.put_state(DATA_KEY, row.id, row)
        if not known:
            return Keyring(catalog, service, runtime, key)
    return Keyring(catalog, service, runtime, _unwrap(service, newest(row for _, row in known)))


def _unused(reading: Reading) -> bool:
    return not reading.scopes() and not reading.streams(limit=1) and not reading.logs_after(LogId(0), 1)


def _make(service: KeyService, runtime: Runtime, now: Micros) -> tuple[DataKey, DataKeyRow]:
    name = f"{runtime.ids.bits(_ID_BITS):0{_ID_BITS // 4}x}"
    secret = runtime.ids.bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big")
    master = service.current
    wrapped = service.wrap(master, secret)
    return DataKey(name, secret, master, wrapped), DataKeyRow(name, master, wrapped, _check(secret), now)


def _unwrap(service: KeyService, row: DataKeyRow) -> DataKey:
    secret = service.unwrap(row.master, row.wrapped)
    # A service may return a result for any input; this detects a wrong one.
    if not hmac.compare_digest(_check(secret).encode(), row.check.encode("utf-8", "surrogatepass")):
        raise WrongKey(row.master)
    return DataKey(row.id, secret, row.master, row.wrapped)


def _check(secret: bytes) -> str:
    return hmac.digest(secret, _CHECKED, "sha256").hex()
