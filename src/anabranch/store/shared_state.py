"""Shared state of a store: revisioned streams, and the synchronizer on top of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeVar, cast

from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument, Truncated
from anabranch.log.commit import Committer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.shared_state.revisioned_stream import RevisionedStream
from anabranch.shared_state.synchronizer import JsonCodec, StateCodec, StateSynchronizer
from anabranch.store.parts import StoreContext
from anabranch.streams.manager import Streams

T = TypeVar("T")

STATE_PREFIX: Final = "_state-"


class SharedState(Displayed):
    """State that processes share: revisioned streams, and values that many processes change in turn."""

    def __init__(self, parts: StoreContext, streams: Streams) -> None:
        self._parts = parts
        self._streams = streams

    def revisioned(self, name: str | StreamName, *, create: bool = True) -> RevisionedStream:
        """The revisioned stream of this name, created if needed; see `RevisionedStream`. Such names are reserved for
        the store, so they begin with `_`. Raises StreamNotFound without `create`, InvalidArgument."""
        self._parts.check_open()
        full = StreamName.parse(name)
        if not full.internal:
            raise InvalidArgument(f"'{full}' can't be a revisioned stream: its name must begin with '_'")
        info = self._streams.create(full, exist_ok=True) if create else self._streams.get(full)
        return self.by_id(info.id)

    def by_id(self, stream: StreamId) -> RevisionedStream:
        """The revisioned stream with this id, whatever its name."""

        def truncate(stream: StreamId, cut: StreamCut) -> None:
            with suppress(Truncated):  # another process truncated more
                self._streams.truncate(stream, cut)

        return RevisionedStream(
            self._parts.catalog,
            Committer(self._parts.catalog, self._parts.blobs, self._parts.runtime),
            self._parts.logs,
            self._parts.runtime,
            stream,
            truncate=truncate,
            committed=self._parts.tail.notify,
        )

    def synchronizer(
        self,
        name: str | StreamName,
        *,
        initial: T | None = None,
        codec: StateCodec[T] | None = None,
        create: bool = True,
    ) -> StateSynchronizer[T]:
        """The shared state named `scope/name`, with the value `initial` if it is new; see `StateSynchronizer`. Encoded
        as JSON unless a `codec` is given, which must be the same in every process. Kept on the stream
        `scope/_state-name`. Raises StreamNotFound without `create`, ScopeNotFound."""
        full = StreamName.parse(name)
        stream = self.revisioned(StreamName(full.scope, f"{STATE_PREFIX}{full.name}"), create=create)
        return StateSynchronizer(stream, self._parts.runtime, codec or cast(StateCodec[T], JsonCodec()), initial)
