"""Ephemeral streams, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from anabranch.catalog.port import Writing
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.stream import StreamInfo
from anabranch.runtime.ids import token
from anabranch.streams.arguments import Which, said, scaling_of, shown, wanted_schema, which
from anabranch.streams.change import Changes
from anabranch.streams.ephemeral import Holder, ephemeral_streams, holders_of, is_ephemeral
from anabranch.streams.find import need_info
from anabranch.streams.hold import create_held, join_holders, keep_stream, sweep_stream
from anabranch.streams.holding import Held, Holdings
from anabranch.streams.requests import Result
from anabranch.streams.scope import create_scope
from anabranch.streams.told import heard_info, told_info

Name = str | StreamName
NAMELESS: Final = "_ephemeral"  # the scope of streams that nobody gave a name


class Temporary(Changes):
    """What `Streams` does with streams that live only while somebody holds them."""

    _holdings: Holdings

    def ephemeral(
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
        """A new stream that lives while somebody holds it, first of all the caller:

            with store.streams.ephemeral("iot/tmp") as stream, store.writer(stream.name) as writer: ...

        It is gone when the last holder leaves. A holder that was killed is waited for, `limits.EPHEMERAL_LEASE_US` and
        what clocks may differ; then upkeep or `anabranch collect` removes the stream. This process prolongs what it
        holds in the background until it leaves or the store is closed. Others join by `hold`. In all else it is a stream
        as any other; copies of it are lasting. Without a name it is an internal stream. The other arguments are those
        of `create`. Raises StreamExists, ScopeNotFound.
        """
        wanted = wanted_schema(schema, key, time)
        policy = scaling_of(scaling)
        if not isinstance(policy, Fixed):
            raise InvalidArgument(
                "an ephemeral stream is scaled by hand: scaling= takes Fixed, or a number of segments"
            )
        full = self._unnamed() if name is None else StreamName.parse(name)
        stream = self._new_id()
        ident = token(self._runtime.ids)

        def act(txn: Writing, now: Micros) -> Result:
            holder = self._holdings.holder(ident, now)
            create_held(txn, full, stream, wanted, policy, tags or {}, holder, now)
            return _told(stream, full, holder)

        what = said(name=name and full, schema=wanted, segments=policy.segments, tags=tags)
        return self._held(self._change(f"ephemeral{what}", request, act, on=full))

    def hold(self, name: Which, *, request: str | None = None) -> Held:
        """Hold an ephemeral stream too, until `leave` or the end of the `with` block. Raises InvalidArgument for a lasting
        stream, StreamNotFound."""
        full = which(name)
        ident = token(self._runtime.ids)

        def act(txn: Writing, now: Micros) -> Result:
            holder = self._holdings.holder(ident, now)
            stream = join_holders(txn, full, holder)
            return _told(stream, full if isinstance(full, StreamName) else need_info(txn, stream).name, holder)

        return self._held(self._change(f"hold {shown(full)}", request, act, on=full))

    def keep(self, name: Which, *, request: str | None = None) -> StreamInfo:
        """Let an ephemeral stream last, whoever holds it. A lasting one stays as it is. Raises StreamNotFound."""
        full = which(name)

        def act(txn: Writing, now: Micros) -> Result:
            return told_info(need_info(txn, keep_stream(txn, full, now)))

        return heard_info(self._change(f"keep {shown(full)}", request, act, on=full))

    def is_ephemeral(self, name: Which) -> bool:
        """True if the stream goes when nobody holds it any more. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            return is_ephemeral(txn, need_info(txn, which(name)).id)

    def holders(self, name: Which) -> tuple[Holder, ...]:
        """Who holds an ephemeral stream, who came first foremost; nobody holds a lasting one. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            found = holders_of(txn, need_info(txn, which(name)).id) or ()
        return tuple(sorted(found, key=lambda holder: holder.since))

    def sweep(self) -> int:
        """Remove the ephemeral streams whose holders have all ended without leaving, as upkeep does; how many. What this
        process holds stays, however long it stood still."""
        now = self._runtime.clock.now()
        mine = self._holdings.streams
        with self._catalog.reading() as txn:
            found = ephemeral_streams(txn)
        gone = 0
        for stream, holders in found.items():
            if stream not in mine and not all(holder.alive(now) for holder in holders):
                with self._catalog.writing(stream) as writing:
                    gone += sweep_stream(writing, stream, now)
        if gone:
            self._changed()
        return gone

    def _held(self, result: Result) -> Held:
        told: Any = result
        stream = StreamId(int(told["stream"], 16))
        return self._holdings.add(stream, StreamName.parse(told["name"]), Holder(**told["holder"]))

    def _unnamed(self) -> StreamName:
        name = StreamName(NAMELESS, token(self._runtime.ids))
        with self._catalog.reading() as txn:
            found = txn.scope(NAMELESS)
        if found is None:
            with self._catalog.writing() as writing:
                if writing.scope(NAMELESS) is None:
                    create_scope(writing, NAMELESS, {}, self._runtime.clock.now())
        return name


def _told(stream: StreamId, name: StreamName, holder: Holder) -> Result:
    return {"stream": f"{stream:016x}", "name": str(name), "holder": asdict(holder)}
