"""Opens blobs at their address: a folder, an object store or memory."""

from __future__ import annotations

import os

from anabranch.blobs.address import is_remote, parse
from anabranch.blobs.cache import PooledBlobs
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.blobs.tiers import TieredBlobs
from anabranch.errors import StoreNotFound
from anabranch.runtime.folders import make_folder, path_text
from anabranch.runtime.ports import Runtime
from anabranch.store.addresses import MEMORY, folder_of, is_folder


def open_tiers(
    place: str | os.PathLike[str], history: str | os.PathLike[str] | None, runtime: Runtime, *, create: bool
) -> Blobs:
    """The blobs, with compacted ones at `history` if that is given and not empty. Raises as `open_blobs`."""
    fresh = open_blobs(place, runtime, create=create)
    return fresh if not history else TieredBlobs(fresh, open_blobs(history, runtime, create=create))


def open_blobs(place: str | os.PathLike[str], runtime: Runtime, *, create: bool, read_once: bool = False) -> Blobs:
    """The blobs in a folder, an object store or memory. Blobs fetched from an object store are cached, unless each is
    `read_once`. Raises StoreNotFound for a missing folder unless `create` is set, StoreUnavailable and its subclasses,
    InvalidArgument."""
    text = path_text("an address", place)
    if text == MEMORY:
        return MemoryBlobs()
    if is_remote(text):
        from anabranch.blobs.objects import ObjectBlobs  # slow to load

        remote = ObjectBlobs(parse(text), runtime)
        return remote if read_once else PooledBlobs(remote, runtime)
    folder = folder_of(text)
    if not create and not is_folder(folder):
        raise StoreNotFound(str(folder))
    make_folder(folder, shared=runtime.settings.shared_files, sync_existing=False)  # the first put syncs it
    return LocalBlobs(folder, runtime)
