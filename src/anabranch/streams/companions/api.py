"""Companions of streams, as methods of the stream manager."""

from __future__ import annotations

from contextlib import suppress

from anabranch.catalog.port import Writing
from anabranch.catalog.state.streams import ORPHAN
from anabranch.core.display import Displayed
from anabranch.errors import AppendUncertain, StoreUnavailable
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import INTERNAL_SCOPE, StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import RAW
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info
from anabranch.streams.directory.scopes import create_scope
from anabranch.streams.lifecycle.companions import put_companion
from anabranch.streams.lifecycle.create import create_stream, delete_stream
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import put_policy


class Companions(Displayed):
    """Internal streams that belong to another stream and are deleted with it."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime

    def create(self, stream: StreamId, name: str, *, retention: Retention) -> StreamName:
        """Create the companion `_store/<name>-<id>` of `stream`: a raw stream of one segment. If it exists, nothing
        changes. Raises StreamNotFound."""
        full = companion_name(name, stream)
        companion = self._changes.new_id()

        def change(txn: Writing, now: Micros) -> None:
            need_info(txn, stream)  # a companion of a deleted stream would never be deleted
            if txn.stream(full) is None:
                if txn.scope(INTERNAL_SCOPE) is None:
                    create_scope(txn, INTERNAL_SCOPE, {}, now)
                create_stream(txn, full, companion, RAW, Fixed(1), {}, now)
                put_policy(txn, companion, retention, now)
                put_companion(txn, stream, companion)

        self._changes.apply(f"make {full}", None, change, retry=True)
        return full

    def sweep(self) -> int:
        """Delete the companions of deleted streams; returns how many. Called when a stream is deleted, and by upkeep.
        Raises nothing: companions that can't be deleted now are left to upkeep."""
        swept = 0
        with suppress(AppendUncertain, StoreUnavailable):
            with self._catalog.reading() as reading:
                found = reading.states(ORPHAN)
            for companion, _ in found:
                with self._catalog.writing(companion) as txn:
                    if txn.stream(companion) is not None:
                        delete_stream(txn, companion, self._runtime.clock.now())
                    txn.drop_state(ORPHAN, companion)
                swept += 1
        return swept


def companion_name(name: str, stream: StreamId) -> StreamName:
    """The name of a companion of a stream."""
    return StreamName(INTERNAL_SCOPE, f"{name}-{stream:016x}")
