"""Companions of streams, as methods of the stream manager."""

from __future__ import annotations

from contextlib import suppress

from anabranch.catalog.port import Writing
from anabranch.errors import AppendUncertain, StoreUnavailable
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import OWN_SCOPE, StreamName
from anabranch.model.policy import Fixed
from anabranch.model.retention import Retention
from anabranch.model.schema import RAW
from anabranch.streams.change import Changes
from anabranch.streams.companion import forget_orphan, orphans, put_companion
from anabranch.streams.create import create_stream, delete_stream
from anabranch.streams.find import need_info
from anabranch.streams.requests import Result
from anabranch.streams.retention import put_policy
from anabranch.streams.scope import create_scope


class Companions(Changes):
    """What `Streams` does with the streams that the store keeps for others."""

    def make_companion(self, stream: StreamId, name: str, *, retention: Retention) -> StreamName:
        """A raw stream of one segment that serves `stream`, and is deleted with it: `_store/<name>-<id>`. Where it is there,
        nothing changes. Raises StreamNotFound."""
        full = companion_name(name, stream)
        made = self._new_id()

        def act(txn: Writing, now: Micros) -> Result:
            need_info(txn, stream)  # nothing is made for a stream that is gone: nobody would delete it
            if txn.stream(full) is None:
                if txn.scope(OWN_SCOPE) is None:
                    create_scope(txn, OWN_SCOPE, {}, now)
                create_stream(txn, full, made, RAW, Fixed(1), {}, now)
                put_policy(txn, made, retention, now)
                put_companion(txn, stream, made)
            return {}

        self._change(f"make {full}", None, act, insist=True)
        return full

    def sweep_orphans(self) -> int:
        """Delete the companions of streams that are gone; how many. Done by who deletes a stream, and by upkeep: so what
        can't be deleted now is left to that, and nothing is raised."""
        swept = 0
        with suppress(AppendUncertain, StoreUnavailable):
            with self._catalog.reading() as reading:
                found = list(orphans(reading))
            for companion in found:
                with self._catalog.writing(companion) as txn:
                    if txn.stream(companion) is not None:
                        delete_stream(txn, companion, self._runtime.clock.now())
                    forget_orphan(txn, companion)
                swept += 1
        return swept


def companion_name(name: str, stream: StreamId) -> StreamName:
    """What a companion of a stream is called."""
    return StreamName(OWN_SCOPE, f"{name}-{stream:016x}")
