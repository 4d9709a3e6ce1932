"""A store as a job sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class Site:
    """Catalog, blobs and runtime of one store. `place` says how another process opens it, without secrets: `url`, and
    where they were given `blobs`, `history` and `keys`."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    place: Mapping[str, str] = field(default_factory=dict)


class Sited(Protocol):
    """Whatever stands for a store: it has a site."""

    @property
    def site(self) -> Site:
        """Its parts."""
        ...
