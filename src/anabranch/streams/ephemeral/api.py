"""Ephemeral streams, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from anabranch.catalog.port import Writing
from anabranch.catalog.state.ephemeral import Holder
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.log.upkeep.failures import Isolation
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.stream import StreamInfo
from anabranch.runtime.ids import token
from anabranch.streams.arguments import StreamKey, arguments_text, request_label, scaling_of, stream_key, stream_schema
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info
from anabranch.streams.directory.scopes import create_scope
from anabranch.streams.ephemeral.hold import create_ephemeral, join_holders, make_permanent, sweep_stream
from anabranch.streams.ephemeral.keep_alive import Held, HeldStreams
from anabranch.streams.lifecycle.holders import expired_streams, holders_of, is_ephemeral
from anabranch.streams.requests import Result
from anabranch.streams.results_json import info_from_json, info_to_json

Name = str | StreamName
UNNAMED_SCOPE: Final = "_ephemeral"  # the scope of streams created without a name


class Ephemeral(Displayed):
    """Streams that exist only while a holder holds them."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime
        self._holds = HeldStreams(changes.catalog, changes.runtime, changes.notify)

    def close(self) -> None:
        """Leave the held streams, and end background work. A second call is harmless."""
        self._holds.close()

    def create(
        self,
        name: Name | None = None,
        *,
        schema: Any = None,
        key: str | None = None,
        time: str | None = None,
        scaling: Fixed | int = 1,
        tags: Mapping[str, str] | None = None,
        request: str | None = None,
    ) -> Held:
        """Create a stream that exists while it has a holder; the caller is the first:

            with store.ephemeral.create("iot/tmp") as stream, store.writer(stream.name) as writer: ...

        It is deleted when the last holder leaves. A killed holder still counts for `limits.EPHEMERAL_LEASE_US` plus
        the allowed clock difference; then upkeep or `anabranch collect` removes the stream. This process renews its
        holds in the background until it leaves or the store is closed. Others join by `hold`. Otherwise it is a stream
        like any other; copies of it are permanent. Without a name it is an internal stream. The other arguments are
        those of `create`. Raises StreamExists, ScopeNotFound.
        """
        wanted = stream_schema(schema, key, time)
        policy = scaling_of(scaling)
        if not isinstance(policy, Fixed):
            raise InvalidArgument(
                "an ephemeral stream is scaled by hand: scaling= takes Fixed, or a number of segments"
            )
        full = self._new_name() if name is None else StreamName.parse(name)
        stream = self._changes.new_id()
        ident = token(self._runtime.ids)

        def change(txn: Writing, now: Micros) -> Result:
            holder = self._holds.holder(ident, now)
            create_ephemeral(txn, full, stream, wanted, policy, tags or {}, holder, now)
            return _hold_to_json(stream, full, holder)

        what = arguments_text(name=name and full, schema=wanted, segments=policy.segments, tags=tags)
        return self._held(self._changes.apply(f"ephemeral{what}", request, change, on=full))

    def hold(self, name: StreamKey, *, request: str | None = None) -> Held:
        """Join the holders of an ephemeral stream, until `leave` or the end of the `with` block. Raises InvalidArgument
        for a permanent stream, StreamNotFound."""
        full = stream_key(name)
        ident = token(self._runtime.ids)

        def change(txn: Writing, now: Micros) -> Result:
            holder = self._holds.holder(ident, now)
            stream = join_holders(txn, full, holder)
            return _hold_to_json(stream, full if isinstance(full, StreamName) else need_info(txn, stream).name, holder)

        return self._held(self._changes.apply(f"hold {request_label(full)}", request, change, on=full))

    def hand_over(self, held: Held) -> Holder:
        """Let another process, a client of a broker, hold the stream in place of this one, as the returned holder. It
        has to renew the hold before the holder's `until`."""
        self._holds.hand_over(held)
        return held.holder

    def keep(self, name: StreamKey, *, request: str | None = None) -> StreamInfo:
        """Make an ephemeral stream permanent, whatever its holders. A permanent one stays as it is. Raises
        StreamNotFound."""
        full = stream_key(name)

        def change(txn: Writing, now: Micros) -> Result:
            return info_to_json(need_info(txn, make_permanent(txn, full, now)))

        return info_from_json(self._changes.apply(f"keep {request_label(full)}", request, change, on=full))

    def is_ephemeral(self, name: StreamKey) -> bool:
        """True if the stream is deleted once it has no holders. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            return is_ephemeral(txn, need_info(txn, stream_key(name)).id)

    def holders(self, name: StreamKey) -> tuple[Holder, ...]:
        """The holders of an ephemeral stream, the earliest first; empty for a permanent one. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            found = holders_of(txn, need_info(txn, stream_key(name)).id) or ()
        return tuple(sorted(found, key=lambda holder: holder.since))

    def sweep(self) -> int:
        """Remove the ephemeral streams whose holders have all ended without leaving, as upkeep does; returns how many.
        Streams that this process holds stay, however long it was suspended."""
        now = self._runtime.clock.now()
        own = self._holds.streams
        with self._catalog.reading() as txn:
            due = [each for each in expired_streams(txn, now) if each not in own]
        removed = 0
        isolation = Isolation(self._catalog, self._runtime, "sweep", background=True)
        for stream in due:
            if not isolation.is_backing_off(stream):
                with isolation.guard(stream), self._catalog.writing(stream) as writing:
                    removed += sweep_stream(writing, stream, now)
        isolation.clear_failures()
        if removed:
            self._changes.notify()
        return removed

    def _held(self, result: Result) -> Held:
        fields: Any = result
        stream = StreamId(int(fields["stream"], 16))
        return self._holds.add(stream, StreamName.parse(fields["name"]), Holder(**fields["holder"]))

    def _new_name(self) -> StreamName:
        name = StreamName(UNNAMED_SCOPE, token(self._runtime.ids))
        with self._catalog.reading() as txn:
            found = txn.scope(UNNAMED_SCOPE)
        if found is None:
            with self._catalog.writing() as writing:
                if writing.scope(UNNAMED_SCOPE) is None:
                    create_scope(writing, UNNAMED_SCOPE, {}, self._runtime.clock.now())
        return name


def _hold_to_json(stream: StreamId, name: StreamName, holder: Holder) -> Result:
    return {"stream": f"{stream:016x}", "name": str(name), "holder": asdict(holder)}
