"""Holding ephemeral streams for a client: the broker begins a hold, and the client renews it, at whichever broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.state.ephemeral import Holder
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.store.facade import Store
from anabranch.streams.arguments import StreamKey
from anabranch.streams.ephemeral.api import UNNAMED_SCOPE
from anabranch.streams.ephemeral.hold import HolderState, leave_holders, renew_hold
from anabranch.streams.ephemeral.keep_alive import Held
from anabranch.wire.values import Handle
from anabranch.wire.verbs.needs import Arguments, Need, stream
from anabranch.wire.verbs.verb import StoreVerb

HOLD: Final = "hold"


def create(
    store: Store,
    name: str | StreamName | None = None,
    *,
    schema: Any = None,
    key: str | None = None,
    time: str | None = None,
    scaling: Fixed | int = 1,
    tags: Mapping[str, str] | None = None,
    request: str | None = None,
) -> Handle:
    """See `Ephemeral.create`."""
    held = store.ephemeral.create(name, schema=schema, key=key, time=time, scaling=scaling, tags=tags, request=request)
    return _handed_over(store, held)


def hold(store: Store, name: StreamKey, *, request: str | None = None) -> Handle:
    """See `Ephemeral.hold`."""
    return _handed_over(store, store.ephemeral.hold(name, request=request))


def renew(store: Store, stream: StreamId, holder: Holder) -> tuple[HolderState, Holder]:
    """Renew a hold for another `limits.EPHEMERAL_LEASE_US`. Returns the state of the stream, and the holder now."""
    until = Micros(store.runtime.clock.now() + limits.EPHEMERAL_LEASE_US)
    renewed = replace(_checked(holder), until=until)
    with store.catalog.writing(stream) as txn:
        return renew_hold(txn, stream, renewed), renewed


def leave(store: Store, stream: StreamId, holder: Holder) -> bool:
    """Leave a stream. Returns True if that deleted it. A second call does nothing."""
    with store.catalog.writing(stream) as txn:
        gone = leave_holders(txn, stream, _checked(holder).token, store.runtime.clock.now())
    store.changes.notify()
    return gone


def _checked(holder: Holder) -> Holder:
    for text in (holder.token, holder.process):
        if not 0 < len(text) <= limits.NAME_CHARS_MAX or not text.isprintable():
            raise InvalidArgument(
                f"expected the token and the process of a holder as printable text of 1 to {limits.NAME_CHARS_MAX} characters, "
                f"got {text!r:.100}"
            )
    return holder


def _handed_over(store: Store, held: Held) -> Handle:
    holder = store.ephemeral.hand_over(held)
    return Handle(HOLD, holder.token, {"stream": held.id, "name": held.name, "holder": holder})


def _create_needs(arguments: Arguments) -> list[Need]:
    name = arguments.get("name")
    return [Need("create", "scope", UNNAMED_SCOPE) if name is None else Need("create", "new", name)]


HOLD_VERBS: Final = (
    StoreVerb("ephemeral.create", _create_needs, run=create),
    StoreVerb("ephemeral.hold", stream("write", "name"), run=hold),
    StoreVerb("hold.leave", stream("write", "stream"), run=leave),
    StoreVerb("hold.renew", stream("write", "stream"), run=renew),
)
