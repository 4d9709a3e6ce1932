"""Keeps archives apart: none may lie in the folder or prefix of another one, whose files it would seem to be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from anabranch.blobs.address import is_remote
from anabranch.blobs.port import Blobs
from anabranch.core.redact import shown_address
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.runtime.folders import folder_at, path_text
from anabranch.transfer.archives.format import METADATA
from anabranch.transfer.archives.metadata import is_archive


def require_outside(
    url: str | os.PathLike[str], open_location: Callable[..., AbstractContextManager[tuple[Blobs, str]]]
) -> None:
    """Raise InvalidArgument if a folder or prefix above the one at `url` is an archive, or that can't be a folder. Those
    that this process may not read are passed over."""
    text = path_text("the address of an archive", url)
    for outer in _above(text):
        found = False
        with suppress(AnabranchError), open_location(outer, create=False) as (blobs, _):
            found = is_archive(blobs)
        if found:
            raise InvalidArgument(
                f"{shown_address(text)} is inside the archive {shown_address(outer)}; "
                "give a folder or prefix outside of it"
            )


def require_none_inside(blobs: Blobs, place: str) -> None:
    """Raise InvalidArgument if a folder or prefix below the place is an archive."""
    for info in blobs.list():
        folder, slash, name = info.key.rpartition("/")
        if slash and name == METADATA:
            raise InvalidArgument(f"{place} has an archive inside it, in {folder}; give an empty folder or prefix")


def _above(text: str) -> Iterator[str]:
    """The addresses of the folders or prefixes above this one, the nearest first."""
    if is_remote(text):
        address, mark, options = text.partition("?")
        scheme, separator, path = address.partition("://")
        bucket, *parts = path.split("/")
        parts = [part for part in parts if part]
        for count in reversed(range(len(parts))):
            yield scheme + separator + "/".join((bucket, *parts[:count])) + mark + options
    elif (folder := folder_at(text)) is not None:
        yield from map(str, Path(os.path.realpath(folder)).parents)
