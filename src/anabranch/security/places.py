"""Folders and addresses that a broker opens for its callers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anabranch.core.redact import shown_address
from anabranch.errors import PermissionDenied
from anabranch.runtime.folders import folder_at


def check_place(place: str, allowed: Iterable[str]) -> None:
    """Raise PermissionDenied unless the place is one of those allowed, or below one.

    Symbolic links are followed. Addresses must have the same scheme, user, host and options as the allowed one: an
    option can lead elsewhere. Raises InvalidArgument for what can't be a folder."""
    found = _local(place)
    for each in allowed:
        below = _local(each)
        if found is None and below is None:
            if _is_below(place, each):
                return
        elif found is not None and below is not None and found.is_relative_to(below):
            return
    raise PermissionDenied(
        f"the broker does not open '{shown_address(place)}': it is not below a place that its configuration allows "
        "(allowed_places)"
    )


def _local(place: str) -> Path | None:
    """The real path of a folder; None for another address."""
    folder = folder_at(place)
    return None if folder is None else folder.resolve()


def _is_below(place: str, allowed: str) -> bool:
    try:
        one, other = urlsplit(place), urlsplit(allowed)
    except ValueError:
        return False
    if (one.scheme, one.netloc, one.query, one.fragment) != (other.scheme, other.netloc, other.query, other.fragment):
        return False
    parts, below = unquote(one.path).split("/"), unquote(other.path).rstrip("/").split("/")
    return ".." not in parts and "." not in parts and parts[: len(below)] == below
