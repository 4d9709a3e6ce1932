"""Folders: which one an address names, where `~` is, and creating them durably (a name survives a power cut only after its parent folder was synced)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from anabranch.errors import InvalidArgument
from anabranch.errors.system import unavailable
from anabranch.runtime.access import access_of

# This process may not list the folder, or its file system doesn't support syncing folders: ignored.
_CANNOT: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP)


def folder_at(address: str) -> Path | None:
    """The folder that a path or a `file:` URL names, with `~` as in `expand_home`; None for another URL. `%` stands for itself,
    in a URL too. Raises InvalidArgument."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    if parts.scheme == "file":
        return expand_home(parts.path)
    return None if "://" in address else expand_home(address)


def path_text(name: str, path: Any) -> str:
    """The text of an address or path that a caller gives as `name`: a text, or an object that stands for a path. Raises
    InvalidArgument for anything else."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):  # not shown: it may hold a password
        raise InvalidArgument(f"expected {name} as text or a path (os.PathLike), got {type(path).__name__}")
    return text


def expand_home(path: str | os.PathLike[str]) -> Path:
    """The path, in which a leading `~` or `~user` is the home of that user. Raises InvalidArgument where it has none, and for
    what no path can be."""
    text = path_text("a path", path)
    if "\0" in text:
        raise InvalidArgument(f"{text!r:.200} is not a path: it has a NUL character")
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise InvalidArgument(f"no home folder is known for '{os.fspath(path)}': write the path in full") from exc


def make_folder(folder: Path, *, shared: bool, sync_existing: bool = True) -> None:
    """Create the folder durably, with all its parents.

    A folder that exists already may have been created by another process that has not synced it yet; so it is synced
    too, unless `sync_existing` is False because the caller does that before anything in the folder matters. Only the
    owner has access, unless it is `shared`; see `access_of`. Raises StoreUnavailable and its subclasses.
    """
    try:
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        access_of(folder, shared=shared).make_root(folder)
        for each in made or ([folder] if sync_existing else []):
            sync_parent(each)
    except OSError as exc:
        raise unavailable(exc, f"the folder {folder} can't be created") from exc


def sync_parent(path: Path) -> None:
    """Make a name durable, if its folder can be synced at all. Raises OSError if the disk fails."""
    try:
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
