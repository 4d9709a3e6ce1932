"""A store within one transaction of its catalog: for several changes that take place together or not at all."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn, cast

from anabranch.catalog.joined import JoinedCatalog
from anabranch.deployments.templates.api import Templates
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.modules.api import Modules
from anabranch.store.catalog_store import CatalogStore
from anabranch.store.groups import Groups
from anabranch.store.parts import StoreContext
from anabranch.store.policies import StorePolicies
from anabranch.store.producers import Producers
from anabranch.store.scopes import StoreScopes
from anabranch.store.shared_state import SharedState
from anabranch.store.streams import StoreStreams, TargetStore
from anabranch.store.subscribers import StoreSubscribers
from anabranch.store.transactions import Transactions
from anabranch.store.watermarks import StoreWatermarks


class JoinedStore(CatalogStore):
    """The features of a store that only change its catalog, within one transaction; with the names of `Store`. `parts`
    are those of the whole store. It starts nothing in the background, and methods that move events or wait must not be
    called."""

    def __init__(self, parts: StoreContext, catalog: JoinedCatalog) -> None:
        super().__init__(catalog, parts.runtime, on_close=_nothing)
        logs, tail = LogReader(catalog, parts.blobs, parts.runtime), Tail(catalog, parts.runtime)
        self._parts = StoreContext(
            catalog, parts.blobs, parts.runtime, logs, tail, parts.check_open, keep=_nothing, forget=_nothing
        )

    @cached_property
    def streams(self) -> StoreStreams:
        """See `Store.streams`."""
        return StoreStreams(self.changes, self.companions, self.ephemeral, _needs_events, cast(TargetStore, self))

    @cached_property
    def scopes(self) -> StoreScopes:
        """See `Store.scopes`."""
        return StoreScopes(self.changes, self.companions, cast(TargetStore, self))

    @cached_property
    def policies(self) -> StorePolicies:
        """See `Store.policies`."""
        return StorePolicies(self.changes, self.subscribers)

    @cached_property
    def shared(self) -> SharedState:
        """See `Store.shared`."""
        return SharedState(self._parts, self.streams)

    @cached_property
    def subscribers(self) -> StoreSubscribers:
        """See `Store.subscribers`."""
        return StoreSubscribers(self._parts, self.streams, self.shared, _needs_events)

    @cached_property
    def groups(self) -> Groups:
        """See `Store.groups`."""
        return Groups(
            self._parts, self.streams, self.shared, stage=_needs_events, listen=_needs_events, window=_needs_events
        )

    @cached_property
    def producers(self) -> Producers:
        """See `Store.producers`."""
        return Producers(self._parts, self.streams, _needs_events)

    @cached_property
    def transactions(self) -> Transactions:
        """See `Store.transactions`."""
        return Transactions(self._parts, note=_needs_events)

    @cached_property
    def watermarks(self) -> StoreWatermarks:
        """See `Store.watermarks`."""
        return StoreWatermarks(self._parts, self.streams, self.companions, self.shared)

    @cached_property
    def modules(self) -> Modules:
        """See `Store.modules`."""
        return Modules(self.changes)

    @cached_property
    def templates(self) -> Templates:
        """See `Store.templates`."""
        return Templates(self.changes)


def _nothing(*_: object) -> None:
    return None


def _needs_events(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("this needs the whole store")
