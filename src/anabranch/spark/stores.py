"""The open stores of a Spark process: one for each place, opened on first use and kept open.

Spark's workers are forked, reused for many tasks, and end without clean-up, so nothing uncommitted may be held here.
"""

from __future__ import annotations

import os
import threading

from anabranch.errors import InvalidArgument
from anabranch.store import Store, StoreAddresses, connect

__all__ = ["address_options", "addresses_of", "open_store"]

_open: dict[tuple[int, StoreAddresses, int], Store] = {}
_lock = threading.Lock()


def addresses_of(store: Store | str | os.PathLike[str]) -> StoreAddresses:
    """The places from which another process can open a store. Raises InvalidArgument if no other process can."""
    if not isinstance(store, Store):
        return StoreAddresses.of(store)
    addresses = store.addresses or StoreAddresses.of(store.url)
    if "memory://" in (addresses.url, addresses.blobs, addresses.history):
        raise InvalidArgument("Spark's workers are other processes and can't see memory://; use a folder")
    if store.runtime.sealer is not None and addresses.keys is None:
        raise InvalidArgument(
            "Spark's workers are other processes and can't use this key service; open the store with keys='file:…' or 'env:…'"
        )
    return addresses


def address_options(addresses: StoreAddresses) -> dict[str, str]:
    """The data source options that lead to a store."""
    options = {
        "path": addresses.url,
        "blobs": addresses.blobs,
        "history": addresses.history,
        "encryptionKeys": addresses.keys,
    }
    return {name: value for name, value in options.items() if value is not None}


def open_store(addresses: StoreAddresses) -> Store:
    """This process's store at these places, shared: never close it. Raises StoreNotFound."""
    with _lock:
        key = _key(addresses)
        if key not in _open:
            _open[key] = connect(
                addresses.url, blobs=addresses.blobs, history=addresses.history, keys=addresses.keys, create=False
            )
        return _open[key]


def _key(addresses: StoreAddresses) -> tuple[int, StoreAddresses, int]:
    # The process id, because a store must not be used after a fork; the inode, because a folder may be recreated.
    return os.getpid(), addresses, addresses.inode
