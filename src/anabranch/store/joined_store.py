"""A store within one transaction of its catalog: for several changes that take place together or not at all."""

from __future__ import annotations

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
        own = StoreContext(
            catalog, parts.blobs, parts.runtime, logs, tail, parts.check_open, keep=_nothing, forget=_nothing
        )
        whole = cast(TargetStore, self)
        streams = StoreStreams(self.changes, self.companions, self.ephemeral, _needs_events, whole)
        self.streams = streams
        self.scopes = StoreScopes(self.changes, self.companions, whole)
        self.shared = SharedState(own, streams)
        self.subscribers = StoreSubscribers(own, streams, self.shared, _needs_events)
        self.policies = StorePolicies(self.changes, self.subscribers)
        self.groups = Groups(own, streams, self.shared, stage=_needs_events, listen=_needs_events, window=_needs_events)
        self.producers = Producers(own, streams, _needs_events)
        self.transactions = Transactions(own, note=_needs_events)
        self.watermarks = StoreWatermarks(own, streams, self.companions, self.shared)
        self.modules = Modules(self.changes)
        self.templates = Templates(self.changes)


def _nothing(*_: object) -> None:
    return None


def _needs_events(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("this needs the whole store")
