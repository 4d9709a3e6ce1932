"""The stores that a process of Spark has open: one for each folder, opened when first used and kept.

Spark's workers are forked and reused for many tasks, and end without any clean-up: nothing may be held here that has
not been committed.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.log.read import LogReader
from anabranch.store import Store, connect

__all__ = ["Opened", "open_store"]

_Place = tuple[int, str, int]

_open: dict[_Place, Opened] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Opened:
    """A store, and what reads ranges of its segments."""

    store: Store
    logs: LogReader


def open_store(path: str) -> Opened:
    """This process's store in the folder `path`; never to be closed. Raises StoreNotFound."""
    with _lock:
        opened = _open.get(_place(path))
        if opened is None:
            store = connect(path, create=False)
            opened = Opened(store, LogReader(store.catalog, store.blobs, store.runtime))
            _open[_place(path)] = opened
        return opened


def _place(path: str) -> _Place:
    # The process, because a store must not be used behind a fork; the file, because a folder may be made anew.
    try:
        inode = Path(path, CATALOG_FILE).stat().st_ino
    except OSError:
        inode = 0
    return os.getpid(), path, inode
