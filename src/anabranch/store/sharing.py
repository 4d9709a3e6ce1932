"""What a store offers to processes that work together: revisioned streams, shared state, reader groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.cuts import reached
from anabranch.core.group import GroupState
from anabranch.core.group_format import GroupCodec
from anabranch.core.notifications import GroupPicture, told_of_group
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import GroupNotFound, InvalidArgument, ScopeNotFound, StreamNotFound, StreamRenamed, Truncated
from anabranch.log.commit import Committer
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.append import Part
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.readers.group.checkpoints import offsets_at
from anabranch.readers.group.group import ReaderGroup
from anabranch.readers.group.reader import GroupReader
from anabranch.readers.notifications.listen import Handle, Subscription
from anabranch.readers.place import Place, TimeKind
from anabranch.readers.revisioned import RevisionedStream
from anabranch.readers.synchronizer import Codec, JsonCodec, StateSynchronizer
from anabranch.runtime.ports import Runtime
from anabranch.streams.manager import Streams
from anabranch.streams.publish import Numbered, Publication, end_series, publish
from anabranch.streams.stage import Stager

T = TypeVar("T")

GROUP_PREFIX: Final = "_group-"
STATE_PREFIX: Final = "_state-"


class Leaver:
    """Closes a group reader with its store: what it had in hand is not accepted, for nobody said that it was done."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def close(self) -> None:
        """See `GroupReader.abandon`."""
        self._reader.abandon()


class _Parts(Protocol):
    """What of a store the calls below are made of."""

    catalog: Catalog
    blobs: Blobs
    runtime: Runtime
    streams: Streams
    _logs: LogReader
    _tail: Tail

    def _alive(self) -> None: ...
    def stager(self, stream: str | StreamName | StreamId) -> Stager: ...
    def _keep(self, each: Any) -> None: ...
    def _forget(self, each: Any) -> None: ...
    def time_window(self, stream: str | StreamName | StreamId, position: StreamCut) -> TimeWindow: ...
    def _listen(
        self, picture: Callable[[], GroupPicture], kind: str, handle: Handle, name: str | None
    ) -> Subscription: ...


class Sharing:
    """The part of `Store` that other processes see the results of."""

    def revisioned(self, name: str | StreamName, *, create: bool = True) -> RevisionedStream:
        """The revisioned stream of this name, made if need be; see `RevisionedStream`. Its own name is the store's to
        keep, so it begins with `_`. Raises StreamNotFound without `create`, InvalidArgument."""
        store = cast(_Parts, self)
        store._alive()
        full = StreamName.parse(name)
        if not full.internal:
            raise InvalidArgument(f"'{full}' can't be a revisioned stream: its name must begin with '_'")
        info = store.streams.create(full, exist_ok=True) if create else store.streams.get(full)
        return self._revisioned(info.id)

    def _revisioned(self, stream: StreamId) -> RevisionedStream:
        store = cast(_Parts, self)

        def truncate(stream: StreamId, cut: StreamCut) -> None:
            with suppress(Truncated):  # another process let go of more
                store.streams.truncate(stream, cut)

        return RevisionedStream(
            store.catalog,
            Committer(store.catalog, store.blobs, store.runtime),
            store._logs,
            store.runtime,
            stream,
            truncate=truncate,
            committed=store._tail.notify,
        )

    def synchronizer(
        self, name: str | StreamName, *, initial: T | None = None, codec: Codec[T] | None = None, create: bool = True
    ) -> StateSynchronizer[T]:
        """The shared state of this name, as `scope/name`, with the value `initial` if it is new; see `StateSynchronizer`.
        It is JSON unless a `codec` is given, which every process must give alike. It lies on the stream
        `scope/_state-name`. Raises StreamNotFound without `create`, ScopeNotFound."""
        full = StreamName.parse(name)
        stream = self.revisioned(StreamName(full.scope, f"{STATE_PREFIX}{full.name}"), create=create)
        return StateSynchronizer(stream, cast(_Parts, self).runtime, codec or cast(Codec[T], JsonCodec()), initial)

    def reader_group(
        self,
        name: str | StreamName,
        *,
        streams: Sequence[str | StreamName] | str | None = None,
        start: Place | Mapping[str, Place] = HEAD,
        end: Place | Mapping[str, Place] | None = None,
        by: TimeKind = "append",
        lease_s: float = limits.READER_LEASE_US / 1e6,
        refresh_s: float = limits.READER_REFRESH_US / 1e6,
        checkpoint_s: float | None = None,
    ) -> ReaderGroup:
        """The reader group of this name, as `scope/name`, made if it is not there and `streams` are given.

        The streams may be of any scopes. `start` and `end` are places as for a reader, in every stream or for each by name;
        without `end` the group follows. A reader that gives no sign of life for `lease_s` seconds is presumed dead. Every
        `refresh_s` seconds, or an eighth of the lease, a reader looks what the others did and tells how far it is. Every
        `checkpoint_s` seconds a checkpoint begins by itself; None: never. All of this is settled when the group is made,
        and not looked at where it is there, but for `streams`, which must then be the same ones.

        Raises GroupNotFound where there is none and no streams are given, ScopeNotFound, StreamNotFound, InvalidArgument.
        """
        store = cast(_Parts, self)
        store._alive()
        full = StreamName.parse(name)
        inner = StreamName(full.scope, f"{GROUP_PREFIX}{full.name}")
        wanted = [streams] if isinstance(streams, str) else streams
        ids = None if wanted is None else tuple(store.streams.get(each).id for each in wanted)
        initial: Callable[[], GroupState] | None = None
        if ids is not None:
            if not ids or len(set(ids)) != len(ids):
                raise InvalidArgument("streams= names each stream once, and at least one")
            initial = self._new_group(ids, start, end, by, lease_s, refresh_s, checkpoint_s)
        shared = self._shared(full, inner, initial)
        if ids is not None and set(shared.state.streams) != set(ids):
            raise InvalidArgument(f"reader group '{full}' reads other streams; delete it first, or leave streams= out")
        return self._group(full, shared.stream.id)

    def reader_groups(self, scope: str | None = None) -> list[str]:
        """The names of the groups, of one scope or of all. Raises ScopeNotFound."""
        store = cast(_Parts, self)
        store._alive()
        with store.catalog.reading() as reading:
            if scope is not None and reading.scope(scope) is None:
                raise ScopeNotFound(scope)
            names = [info.name for info in reading.streams(scope)]
        return [_group_of(each) for each in names if each.name.startswith(GROUP_PREFIX)]

    def _shared(
        self, full: StreamName, inner: StreamName, initial: Callable[[], GroupState] | None
    ) -> StateSynchronizer[GroupState]:
        try:
            stream = self.revisioned(inner, create=False)
        except ScopeNotFound:
            raise
        except StreamNotFound as exc:
            if initial is None:
                now = StreamName.parse(exc.name) if isinstance(exc, StreamRenamed) else None
                raise GroupNotFound(str(full), None if now is None else _group_of(now)) from None
            stream = self.revisioned(inner)
        first = initial() if initial is not None and stream.latest() == 0 else None
        if first is None and stream.latest() == 0:
            raise GroupNotFound(str(full))  # it is being made, and not there yet
        return self._state_of(full, stream, first)

    def _state_of(
        self, full: StreamName, stream: RevisionedStream, first: GroupState | None = None
    ) -> StateSynchronizer[GroupState]:
        runtime = cast(_Parts, self).runtime
        return StateSynchronizer(stream, runtime, GroupCodec(), first, told=partial(told_of_group, str(full)))

    def _group(self, full: StreamName, stream: StreamId) -> ReaderGroup:
        """By the id of what it is kept on: another group may have its name by the time it is used."""
        store = cast(_Parts, self)

        def shared() -> StateSynchronizer[GroupState]:
            try:
                return self._state_of(full, self._revisioned(stream))
            except StreamNotFound:
                raise GroupNotFound(str(full)) from None

        leavers: dict[GroupReader, Leaver] = {}

        def keep(reader: GroupReader) -> None:
            leavers[reader] = Leaver(reader)
            store._keep(leavers[reader])

        def forget(reader: GroupReader) -> None:
            if (leaver := leavers.pop(reader, None)) is not None:
                store._forget(leaver)

        def delete() -> None:
            try:
                store.streams.delete(stream)
            except StreamNotFound:
                return

        return ReaderGroup(
            str(full),
            shared,
            store.catalog,
            store._logs,
            store._tail,
            store.runtime,
            outputs=_Outputs(store),
            keep=keep,
            forget=forget,
            delete=delete,
            listen=store._listen,
            window=store.time_window,
        )

    def _new_group(
        self,
        ids: tuple[StreamId, ...],
        start: Place | Mapping[str, Place],
        end: Place | Mapping[str, Place] | None,
        by: TimeKind,
        lease_s: float,
        refresh_s: float,
        checkpoint_s: float | None,
    ) -> Callable[[], GroupState]:
        store = cast(_Parts, self)
        lease_us, refresh_us = round(lease_s * 1e6), round(refresh_s * 1e6)
        if lease_us < limits.READER_LEASE_US_MIN:
            raise InvalidArgument(f"a lease is at least {limits.READER_LEASE_US_MIN / 1e6} s, not {lease_s}")
        if refresh_us < limits.READER_REFRESH_US_MIN:
            raise InvalidArgument(
                f"readers look at most every {limits.READER_REFRESH_US_MIN / 1e6} s, not every {refresh_s}"
            )
        if checkpoint_s is not None and checkpoint_s <= 0:
            raise InvalidArgument(f"checkpoints have some time between them, not {checkpoint_s} s")

        def make() -> GroupState:
            views = [store.streams.view(each) for each in ids]
            starts = offsets_at(store.catalog, store._logs, views, start, by=by)
            ends = {}
            if end is not None:
                stops = offsets_at(store.catalog, store._logs, views, end, by=by)
                for view in views:
                    cut = StreamCut.of(
                        view.info.id, {s.segment: at for s, at in stops.items() if s.stream == view.info.id}
                    )
                    ends[view.info.id] = reached(view, cut)
            checkpoint_us = round((checkpoint_s or 0) * 1e6)
            return GroupState(
                ids, starts, ends, starts, lease_us=lease_us, refresh_us=refresh_us, checkpoint_us=checkpoint_us
            )

        return make


class _Outputs:
    """`readers.group.ports.Outputs` of a store: staged as a Spark task does, published with the part in one unit."""

    def __init__(self, store: _Parts) -> None:
        self._store = store

    def stage(self, outputs: Mapping[str, Any]) -> list[Publication]:
        """Make the batches ready."""
        made = []
        for name, data in outputs.items():
            stager = self._store.stager(name)
            stager.write(data)
            made.append(Publication(self._store.streams.get(name).id, stager.finish()))
        return made

    def publish(self, staged: Sequence[Any], part: Part, *, series: str, number: int) -> bool:
        """Append both, or neither; once."""
        store, request = self._store, Numbered(_series(series), number)
        first = publish(store.catalog, store.blobs, store.runtime, staged, request=request, beside=(part,))
        store._tail.notify()
        return first

    def end(self, series: str) -> None:
        """Forget a series."""
        end_series(self._store.catalog, _series(series))


def _series(session: str) -> str:
    return f"group reader {session}"


def _group_of(stream: StreamName) -> str:
    """The group that is kept on the stream."""
    return f"{stream.scope}/{stream.name[len(GROUP_PREFIX) :]}"
