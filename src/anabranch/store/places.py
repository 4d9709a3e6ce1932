"""Where a store is, and opening what lies there: its blobs, its catalog."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anabranch.blobs.address import is_remote, parse
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.pools import PooledBlobs
from anabranch.blobs.port import Blobs
from anabranch.blobs.tiers import TieredBlobs
from anabranch.catalog.port import Catalog
from anabranch.errors import (
    InvalidArgument,
    MissingExtra,
    ReadOnlyStore,
    StoreNotFound,
)
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    from anabranch.runtime.sealing import KeyService


MEMORY = "memory://"
POSTGRES = ("postgresql://", "postgres://")
_DATABASE_BYTES_MIN = 512  # SQLite takes less for an empty database


@dataclass(frozen=True, slots=True)
class Places:
    """What `connect` takes to open the same store in another process. `url` may hold a password: it is not for people.
    `keys` says where keys are, never what they are; None also for a key service, which is an object of this process."""

    url: str
    blobs: str | None = None
    history: str | None = None
    keys: str | None = None

    @classmethod
    def of(
        cls,
        url: str | os.PathLike[str],
        blobs: str | os.PathLike[str] | None = None,
        history: str | os.PathLike[str] | None = None,
        keys: str | KeyService | None = None,
    ) -> Places:
        """The same whatever a process's working folder is."""
        return cls(
            lasting(url),
            lasting(blobs) if blobs else None,
            lasting(history) if history else None,
            _lasting_keys(keys) if isinstance(keys, str) else None,
        )


def _lasting_keys(place: str) -> str:
    return f"file:{folder_of(place)}" if place.startswith("file:") else place


def lasting(place: str | os.PathLike[str]) -> str:
    """A place's name, the same whatever a process's working folder is."""
    text = os.fspath(place)
    return text if "://" in text and not text.startswith("file:") else str(folder_of(text))


def is_database(file: Path) -> bool:
    """True if there is a SQLite database that holds anything."""
    return file.exists() and file.stat().st_size >= _DATABASE_BYTES_MIN


def open_postgres(url: str, runtime: Runtime, *, create: bool) -> tuple[Catalog, str]:
    """The catalog, and where it is without a password. Raises MissingExtra, and what the adapter raises."""
    try:
        from anabranch.catalog.postgres.adapter import PostgresCatalog
    except ImportError as exc:
        raise MissingExtra("a catalog on PostgreSQL", "postgres") from exc
    catalog = PostgresCatalog(url, runtime, create=create)
    return catalog, catalog.shown


def open_tiers(
    place: str | os.PathLike[str], history: str | os.PathLike[str] | None, runtime: Runtime, *, create: bool
) -> Blobs:
    """Blobs with compacted ones at `history`, if that is given. Raises as `open_blobs`."""
    fresh = open_blobs(place, runtime, create=create)
    return fresh if history is None else TieredBlobs(fresh, open_blobs(history, runtime, create=create))


def open_blobs(place: str | os.PathLike[str], runtime: Runtime, *, create: bool, read_once: bool = False) -> Blobs:
    """The blobs in a folder, an object store or memory. What is fetched from an object store is kept for those who ask for
    it again, unless each blob is `read_once`. Raises StoreNotFound for a folder that is not there unless it may be
    created, ReadOnlyStore, InvalidArgument."""
    text = os.fspath(place)
    if text == MEMORY:
        return MemoryBlobs()
    if is_remote(text):
        from anabranch.blobs.objects import ObjectBlobs  # takes a while to load

        remote = ObjectBlobs(parse(text), runtime)
        return remote if read_once else PooledBlobs(remote, runtime)
    folder = folder_of(text)
    if not create and not folder.is_dir():
        raise StoreNotFound(str(folder))
    make_folder(folder)
    return LocalBlobs(folder, runtime)


def make_folder(folder: Path) -> None:
    """Have the folder be there. Raises ReadOnlyStore."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ReadOnlyStore(f"the folder {folder} can't be made: {exc.strerror}") from exc


def folder_of(text: str) -> Path:
    """The folder that a path or a file:// URL names. Raises InvalidArgument for a URL of another kind."""
    parts = urlsplit(text)
    if parts.scheme in ("", "file"):
        return Path(parts.path if parts.scheme else text).expanduser().absolute()
    raise InvalidArgument(f"'{text}' is no store: give a folder, a file:// or postgresql:// URL, or memory://")
