"""The parts of a store that its features are built from, passed on as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class StoreContext:
    """The parts of one store. `check_open` raises Closed once the store is closed. What is passed to `keep` is closed
    with the store, unless it is passed to `forget` first."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    logs: LogReader
    tail: Tail
    check_open: Callable[[], None]
    keep: Callable[[Any], object]
    forget: Callable[[Any], None]
