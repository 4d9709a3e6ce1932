"""A store as a job sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.errors import InvalidArgument
from anabranch.runtime.ports import Runtime


class OpenPlace(Protocol):
    """Opens the files of a folder or object store that is no store: that of an archive, say."""

    def __call__(self, url: str | os.PathLike[str], *, create: bool) -> AbstractContextManager[tuple[Blobs, str]]:
        """The files, and what the place is called from any process. Raises NotFound for a folder that is not there,
        unless it may be created; InvalidArgument, ReadOnlyStore."""
        ...


def _nowhere(url: str | os.PathLike[str], *, create: bool) -> AbstractContextManager[tuple[Blobs, str]]:
    raise InvalidArgument(f"this store opens no other places, such as {os.fspath(url)}")


@dataclass(frozen=True, slots=True)
class Site:
    """Catalog, blobs and runtime of one store. `place` says how another process opens it, without secrets: `url`, and
    where they were given `blobs`, `history` and `keys`. `open_place` opens what is no store. `made_by` is what its archives say of the release that made them."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    place: Mapping[str, str] = field(default_factory=dict)
    open_place: OpenPlace = _nowhere
    made_by: str = "anabranch"


class Sited(Protocol):
    """Whatever stands for a store: it has a site."""

    @property
    def site(self) -> Site:
        """Its parts."""
        ...
