"""What verbs are called on in a run that is one transaction: the store within it, and the broker's guard."""

from __future__ import annotations

from typing import cast

from anabranch.catalog.joined import JoinedCatalog
from anabranch.catalog.port import Writing
from anabranch.security.guard import Guard, Principal
from anabranch.server.broker import Broker
from anabranch.store.facade import Store
from anabranch.store.joined_store import JoinedStore


class Together:
    """A broker within one transaction of its catalog, for verbs that `wire.verbs.require_together` accepts. Calls are noted
    for the audit once it is known whether they took place."""

    def __init__(self, broker: Broker, transaction: Writing) -> None:
        self._broker = broker
        self._catalog = JoinedCatalog(broker.store.catalog, transaction)
        self._store = JoinedStore(broker.store.internals, self._catalog)
        self._calls: list[tuple[Principal, str, str | None, Exception | None]] = []

    @property
    def store(self) -> Store:
        """The store within the transaction: the features that those verbs need."""
        return cast(Store, self._store)

    @property
    def guard(self) -> Guard:
        """The broker's."""
        return self._broker.guard

    def require_sound(self) -> None:
        """Raises Conflict if a change failed: the transaction must not be committed."""
        self._catalog.require_sound()

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """Keep a call for `record_all`."""
        self._calls.append((principal, verb, resource, error))

    def record_all(self, error: Exception | None) -> None:
        """Note all calls; with an error, those that succeeded were undone by it."""
        for principal, verb, resource, own in self._calls:
            self._broker.record(principal, verb, resource, own or error)
