"""The parts of a store that a job needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument
from anabranch.runtime.ports import Runtime


class OpenPlace(Protocol):
    """Opens the files of a folder or object store that is not a store, such as an archive's."""

    def __call__(self, url: str | os.PathLike[str], *, create: bool) -> AbstractContextManager[tuple[Blobs, str]]:
        """The files, and an address that is valid in any process. Raises NotFound for a missing folder unless `create`
        is set; InvalidArgument, ReadOnlyStore."""
        ...


def _nowhere(url: str | os.PathLike[str], *, create: bool) -> AbstractContextManager[tuple[Blobs, str]]:
    raise InvalidArgument(f"this store does not open other stores, such as {shown_address(os.fspath(url))}")


@dataclass(frozen=True, slots=True)
class JobStore:
    """Catalog, blobs and runtime of one store. `place` says how another process opens it, without secrets: `url`, and
    if given `blobs`, `history` and `keys`. `open_location` opens what is not a store. `made_by` names the release in the
    archives it creates."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    place: Mapping[str, str] = field(default_factory=dict)
    open_location: OpenPlace = _nowhere
    made_by: str = "anabranch"


class ProvidesJobStore(Protocol):
    """Anything that represents a store and provides its `JobStore`."""

    @property
    def job_store(self) -> JobStore:
        """The parts of the store that a job needs."""
        ...
