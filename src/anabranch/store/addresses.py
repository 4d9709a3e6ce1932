"""The addresses of a store, in forms that don't depend on a process. Loads neither Arrow nor a database's driver."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from anabranch.catalog.postgres.address import PREFIXES
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument
from anabranch.errors.system import unavailable
from anabranch.runtime.folders import folder_at, path_text

if TYPE_CHECKING:
    from anabranch.runtime.sealing import KeyService

MEMORY: Final = "memory://"
POSTGRES: Final = PREFIXES  # how the URL of a catalog on PostgreSQL begins
_DATABASE_BYTES_MIN: Final = 512  # to SQLite a smaller file is an empty database


@dataclass(frozen=True, slots=True)
class StoreAddresses:
    """The arguments of `connect` that open the same store in another process. `url` may hold a password: don't show it.
    `keys` is the address of the keys, never the keys; also None for a key service, which is an object of this
    process."""

    url: str
    blobs: str | None = None
    history: str | None = None
    keys: str | None = None

    def __repr__(self) -> str:
        others = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.name != "url")
        return f"StoreAddresses(url={shown_address(self.url)!r}, {', '.join(others)})"

    @property
    def inode(self) -> int:
        """The inode of a catalog's file, which differs once a folder was recreated; 0 if there is no such file."""
        from anabranch.catalog.sqlite.adapter import FILE

        try:
            return Path(self.url, FILE).stat().st_ino
        except OSError:
            return 0

    @classmethod
    def of(
        cls,
        url: str | os.PathLike[str],
        blobs: str | os.PathLike[str] | None = None,
        history: str | os.PathLike[str] | None = None,
        keys: str | KeyService | None = None,
    ) -> StoreAddresses:
        """Addresses that do not depend on the working folder of a process."""
        return cls(
            absolute_address(url),
            absolute_address(blobs) if blobs else None,
            absolute_address(history) if history else None,
            _absolute_keys(keys) if isinstance(keys, str) else None,
        )


def _absolute_keys(place: str) -> str:
    return f"file:{folder_of(place)}" if place.startswith("file:") else place


def absolute_address(place: str | os.PathLike[str]) -> str:
    """The address in a form that does not depend on the working folder of a process."""
    text = path_text("an address", place)
    return text if "://" in text and not text.startswith("file:") else str(folder_of(text))


def is_database(file: Path) -> bool:
    """True if the file is a SQLite database that is not empty. Raises StoreUnavailable and its subclasses if it can't
    be read."""
    return size_of(file) >= _DATABASE_BYTES_MIN


def size_of(file: Path) -> int:
    """A file's size in bytes; -1 if it does not exist. Raises StoreUnavailable and its subclasses."""
    status = _status_of(file)
    return -1 if status is None else status.st_size


def is_file(path: Path) -> bool:
    """True if there is a regular file at the path. Raises StoreUnavailable and its subclasses."""
    status = _status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_folder(path: Path) -> bool:
    """True if there is a folder at the path. Raises StoreUnavailable and its subclasses."""
    status = _status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise unavailable(exc, f"{path} can't be examined") from exc


def folder_of(text: str) -> Path:
    """The folder that a path or a file:// URL names. Raises InvalidArgument for a URL of another kind, for an empty text
    and for `~user` without a home, StoreUnavailable for a relative path where the working folder is gone."""
    if not text:
        raise InvalidArgument("expected the address of a store, such as ./river, got an empty text")
    try:
        scheme = urlsplit(text).scheme
    except ValueError:  # the exception's message would quote the text
        scheme = None
    if scheme in ("", "file") and (folder := folder_at(text)) is not None:
        try:
            return folder.absolute()
        except OSError as exc:
            raise unavailable(exc, f"{folder} is in this process's working folder, which is gone") from exc
    raise InvalidArgument(
        f"'{shown_address(text)}' is not the address of a store: expected a folder, a file:// or postgresql:// URL, or memory://"
    )
