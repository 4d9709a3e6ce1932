"""The stores that a process of Spark has open: one for each place, opened when first used and kept.

Spark's workers are forked and reused for many tasks, and end without any clean-up: nothing may be held here that has
not been committed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.errors import InvalidArgument
from anabranch.log.read import LogReader
from anabranch.store import Places, Store, connect

__all__ = ["Opened", "open_store", "place_options", "places_of"]

_open: dict[tuple[int, Places, int], Opened] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, and what reads ranges of its segments."""

    store: Store
    logs: LogReader


def places_of(store: Store | str | os.PathLike[str]) -> Places:
    """Where a store can be opened again. Raises InvalidArgument for one that no other process sees."""
    if not isinstance(store, Store):
        return Places.of(store)
    places = store.places or Places.of(store.url)
    if "memory://" in (places.url, places.blobs, places.history):
        raise InvalidArgument("Spark's workers are other processes and can't see memory://; use a folder")
    if store.runtime.sealer is not None and places.keys is None:
        raise InvalidArgument(
            "Spark's workers are other processes and can't use this key service; open the store with keys='file:…' or 'env:…'"
        )
    return places


def place_options(places: Places) -> dict[str, str]:
    """The data source's options for a store."""
    said = {"path": places.url, "blobs": places.blobs, "history": places.history}
    said["encryptionKeys"] = places.keys
    return {name: value for name, value in said.items() if value is not None}


def open_store(places: Places) -> Opened:
    """This process's store at these places; never to be closed. Raises StoreNotFound."""
    with _lock:
        opened = _open.get(_key(places))
        if opened is None:
            store = connect(places.url, blobs=places.blobs, history=places.history, keys=places.keys, create=False)
            opened = Opened(store, LogReader(store.catalog, store.blobs, store.runtime))
            _open[_key(places)] = opened
        return opened


def _key(places: Places) -> tuple[int, Places, int]:
    # The process, because a store must not be used behind a fork; the file, because a folder may be made anew.
    try:
        inode = Path(places.url, CATALOG_FILE).stat().st_ino
    except OSError:
        inode = 0
    return os.getpid(), places, inode
