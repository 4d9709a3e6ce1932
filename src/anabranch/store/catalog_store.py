"""A store whose catalog alone is open: for programs that need names, cuts and policies, but no events.

Opens much faster than `connect`, because neither Arrow nor the blobs are loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from anabranch.catalog.sqlite.adapter import FILE, SqliteCatalog
from anabranch.core.closeable import Closeable
from anabranch.runtime.ports import Runtime
from anabranch.store.addresses import POSTGRES, folder_of, size_of
from anabranch.store.open_postgres import open_postgres

if TYPE_CHECKING:
    from anabranch.catalog.port import Catalog
    from anabranch.model.ids import Micros
    from anabranch.streams.algebra.cuts import Cuts
    from anabranch.streams.change import Changes
    from anabranch.streams.companions.api import Companions
    from anabranch.streams.ephemeral.api import Ephemeral
    from anabranch.streams.lineage.api import Lineage
    from anabranch.streams.manager import Streams
    from anabranch.streams.names.api import Aliases
    from anabranch.streams.policies import Policies
    from anabranch.streams.scopes.api import Scopes


class CatalogStore(Closeable):
    """A store whose catalog alone is open: what needs no events, with the names of `Store`. Close it, or use it as a
    context manager."""

    def __init__(self, catalog: Catalog, runtime: Runtime, *, on_close: Callable[[], None]) -> None:
        self.catalog = catalog
        self.runtime = runtime
        self._on_close = on_close

    @property
    def now(self) -> Micros:
        """The time by the store's clock."""
        return self.runtime.clock.now()

    @cached_property
    def changes(self) -> Changes:
        """See `Store.changes`; loaded on first use, like all that follow."""
        from anabranch.streams.change import Changes

        return Changes(self.catalog, self.runtime, lambda: None)

    @cached_property
    def companions(self) -> Companions:
        """See `Store.companions`."""
        from anabranch.streams.companions.api import Companions

        return Companions(self.changes)

    @cached_property
    def streams(self) -> Streams:
        """See `Store.streams`."""
        from anabranch.streams.manager import Streams

        return Streams(self.changes, self.companions)

    @cached_property
    def scopes(self) -> Scopes:
        """See `Store.scopes`."""
        from anabranch.streams.scopes.api import Scopes

        return Scopes(self.changes, self.companions)

    @cached_property
    def aliases(self) -> Aliases:
        """See `Store.aliases`."""
        from anabranch.streams.names.api import Aliases

        return Aliases(self.changes)

    @cached_property
    def lineage(self) -> Lineage:
        """See `Store.lineage`."""
        from anabranch.streams.lineage.api import Lineage

        return Lineage(self.changes)

    @cached_property
    def policies(self) -> Policies:
        """See `Store.policies`."""
        from anabranch.streams.policies import Policies

        return Policies(self.changes)

    @cached_property
    def cuts(self) -> Cuts:
        """See `Store.cuts`, without cuts at a time, which need events."""
        from anabranch.streams.algebra.cuts import Cuts

        return Cuts(self.changes, _no_events, _no_events)

    @cached_property
    def ephemeral(self) -> Ephemeral:
        """See `Store.ephemeral`. The caller closes it."""
        from anabranch.streams.ephemeral.api import Ephemeral

        return Ephemeral(self.changes)

    def close(self) -> None:
        """Close the catalog."""
        self._on_close()


def connect_catalog(
    url: str,
    *,
    blobs: str | None = None,
    history: str | None = None,
    keys: str | None = None,
    create: bool = False,
) -> CatalogStore:
    """Open the catalog of a store. Raises what `connect` raises.

    A store whose catalog does not exist yet, is empty, or has an address of another kind is opened whole by `connect`,
    which creates it or reports why it can't. A catalog on PostgreSQL needs no address of its blobs here.
    """
    folder = None if url.startswith(POSTGRES) or "://" in url else folder_of(url)
    if not url.startswith(POSTGRES) and (folder is None or size_of(folder / FILE) <= 0):
        from anabranch.store.open import connect

        store = connect(url, blobs=blobs, history=history, keys=keys, create=create)
        return CatalogStore(store.catalog, store.runtime, on_close=store.close)
    runtime = Runtime()
    catalog: Catalog
    if folder is None:
        catalog, _ = open_postgres(url, runtime, create=create)
    else:
        catalog = SqliteCatalog(folder, runtime)
    return CatalogStore(catalog, replace(runtime, clock=catalog.clock), on_close=catalog.close)


def _no_events(*_: object) -> NoReturn:
    raise AssertionError("a cut at a time needs the whole store")
