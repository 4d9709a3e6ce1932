"""Reader groups of a store: creating, opening and listing them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.core.group import GroupState
from anabranch.core.group_format import GroupStateCodec
from anabranch.core.list_filter import ListFilter
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import GroupNotFound, InvalidArgument, ScopeNotFound, StreamNotFound, StreamRenamed
from anabranch.groups.checkpoints import End, ends_at, offsets_at
from anabranch.groups.consumer import GroupConsumer
from anabranch.groups.group import ReaderGroup
from anabranch.groups.reader import GroupReader
from anabranch.model.append import Part
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.group_name import group_name, group_stream, is_group_stream
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName, scope_key
from anabranch.model.seconds import check_seconds
from anabranch.model.time_kind import TimeKind
from anabranch.notifications.group_events import Listen
from anabranch.notifications.kinds import changes_of_group_update
from anabranch.reading.bounds import Place
from anabranch.shared_state.revisioned_stream import RevisionedStream
from anabranch.shared_state.synchronizer import StateSynchronizer
from anabranch.store.parts import StoreContext
from anabranch.store.shared_state import SharedState
from anabranch.streams.arguments import stream_list
from anabranch.streams.manager import Streams
from anabranch.streams.publish import NumberedUnit, Publication, end_series, last_published, publish
from anabranch.writing.staging import Stager


class ClosableMember(NamedTuple):
    """Closes a group reader with its store. What was handed out last is not accepted, since it was not reported as
    processed."""

    reader: GroupConsumer[Any]

    def close(self) -> None:
        """See `GroupReader.abandon`."""
        self.reader.abandon()


class Groups(Displayed):
    """Reader groups by name: open (or create) one, list them. To delete a group, use `ReaderGroup.delete`."""

    def __init__(
        self,
        parts: StoreContext,
        streams: Streams,
        shared: SharedState,
        *,
        stage: Callable[[str], Stager],
        listen: Listen,
        window: Callable[[StreamId, StreamCut], TimeWindow],
    ) -> None:
        self._parts = parts
        self._streams = streams
        self._shared_state = shared
        self._stage = stage
        self._listen = listen
        self._window = window

    def open(
        self,
        name: str | StreamName,
        *,
        streams: Sequence[str | StreamName] | str | None = None,
        start: Place | Mapping[str, Place] = HEAD,
        end: End = None,
        by: TimeKind = "append",
        lease_s: float = limits.READER_LEASE_US / 1e6,
        refresh_s: float = limits.READER_REFRESH_US / 1e6,
        checkpoint_s: float | None = None,
    ) -> ReaderGroup:
        """Open the reader group named `scope/name`. Creates it if it does not exist and `streams` are given.

        The streams may be in any scopes. `start` and `end` are places as for a reader, for every stream or by stream
        name. Without `end` the group follows, and so it does in streams that a mapping leaves out or maps to None. An
        end that is a cut may be ahead of the tail: events up to it are read once they are written. A reader that sends
        no heartbeat for `lease_s` seconds is presumed dead. Every `refresh_s` seconds, or an eighth of the lease, a
        reader reads what the others did and reports its progress. Every `checkpoint_s` seconds a checkpoint begins
        automatically; None: never. All of this is fixed when the group is created and ignored when it exists, except
        `streams`, which must then be the same; `reset` changes streams and ends.

        Raises GroupNotFound if it does not exist and no streams are given, ScopeNotFound, StreamNotFound,
        InvalidArgument.
        """
        self._parts.check_open()
        full = StreamName.parse(name)
        inner = group_stream(full)
        wanted = stream_list(streams)
        ids = None if wanted is None else tuple(self._streams.get(each).id for each in wanted)
        initial: Callable[[], GroupState] | None = None
        if ids is not None:
            if not ids or len(set(ids)) != len(ids):
                raise InvalidArgument("expected at least one stream in streams=, each only once")
            initial = self._new_group(ids, start, end, by, lease_s, refresh_s, checkpoint_s)
        shared = self._shared(full, inner, initial)
        if ids is not None and set(shared.state.streams) != set(ids):
            raise InvalidArgument(
                f"reader group '{full}' reads other streams: open it without streams=, and change them with"
                " reset(streams=…)"
            )
        return self._group(full, shared.stream.id)

    def list(self, scope: str | None = None, *, pattern: str | None = None) -> builtins.list[str]:
        """The names of the groups of one scope or of all scopes, those that match `pattern` (a glob; see
        `Streams.list`). Raises ScopeNotFound, InvalidArgument."""
        self._parts.check_open()
        selected = ListFilter(pattern=pattern)
        with self._parts.catalog.reading() as reading:
            if scope is not None and reading.scope(scope_key(scope)) is None:
                raise ScopeNotFound(scope)
            names = [info.name for info in reading.streams(scope)]
        groups = [group_name(each) for each in names if is_group_stream(each)]
        return [name for name in groups if selected(name, {})]

    def _shared(
        self, full: StreamName, inner: StreamName, initial: Callable[[], GroupState] | None
    ) -> StateSynchronizer[GroupState]:
        try:
            stream = self._shared_state.revisioned(inner, create=False)
        except ScopeNotFound:
            raise
        except StreamNotFound as exc:
            if initial is None:
                now = StreamName.parse(exc.name) if isinstance(exc, StreamRenamed) else None
                raise GroupNotFound(str(full), None if now is None else group_name(now)) from None
            stream = self._shared_state.revisioned(inner)
        first = initial() if initial is not None and stream.latest() == 0 else None
        if first is None and stream.latest() == 0:
            raise GroupNotFound(str(full))  # it is still being created
        return self._state_of(full, stream, first)

    def _state_of(
        self, full: StreamName, stream: RevisionedStream, first: GroupState | None = None
    ) -> StateSynchronizer[GroupState]:
        runtime = self._parts.runtime
        return StateSynchronizer(
            stream, runtime, GroupStateCodec(), first, changes_of=partial(changes_of_group_update, str(full))
        )

    def _group(self, full: StreamName, stream: StreamId) -> ReaderGroup:
        """The group, found by the id of its state's stream: by the time of its use, another group may have its name."""

        def shared() -> StateSynchronizer[GroupState]:
            try:
                return self._state_of(full, self._shared_state.by_id(stream))
            except StreamNotFound:
                raise GroupNotFound(str(full)) from None

        def on_open(reader: GroupReader) -> None:
            self._parts.keep(ClosableMember(reader))

        def delete() -> None:
            with suppress(StreamNotFound):
                self._streams.delete(stream)

        return ReaderGroup(
            str(full),
            shared,
            self._parts.catalog,
            self._parts.logs,
            self._parts.tail,
            self._parts.runtime,
            outputs=_Outputs(self._parts, self._streams, self._stage),
            on_open=on_open,
            on_close=lambda reader: self._parts.forget(ClosableMember(reader)),
            delete=delete,
            listen=self._listen,
            window=self._window,
            find=lambda stream: self._streams.get(stream).id,
        )

    def _new_group(
        self,
        ids: tuple[StreamId, ...],
        start: Place | Mapping[str, Place],
        end: End,
        by: TimeKind,
        lease_s: float,
        refresh_s: float,
        checkpoint_s: float | None,
    ) -> Callable[[], GroupState]:
        for name, seconds in (("lease_s", lease_s), ("refresh_s", refresh_s), ("checkpoint_s", checkpoint_s or 0)):
            check_seconds(name, seconds)
        lease_us, refresh_us = round(lease_s * 1e6), round(refresh_s * 1e6)
        if lease_us < limits.READER_LEASE_US_MIN:
            raise InvalidArgument(f"expected lease_s of at least {limits.READER_LEASE_US_MIN / 1e6} s, got {lease_s}")
        if refresh_us < limits.READER_REFRESH_US_MIN:
            raise InvalidArgument(
                f"expected refresh_s of at least {limits.READER_REFRESH_US_MIN / 1e6} s, got {refresh_s}"
            )
        checkpoint_us = round((checkpoint_s or 0) * 1e6)
        if checkpoint_s is not None and checkpoint_us <= 0:
            raise InvalidArgument(f"expected checkpoint_s above 0, and at least 1 µs, got {checkpoint_s}")

        def make() -> GroupState:
            views = [self._streams.view(each) for each in ids]
            starts = offsets_at(self._parts.logs, views, start, by=by)
            ends = ends_at(self._parts.logs, views, end, by=by)
            names = {view.info.id: str(view.info.name) for view in views}
            return GroupState(
                ids,
                starts,
                ends,
                starts,
                lease_us=lease_us,
                refresh_us=refresh_us,
                checkpoint_us=checkpoint_us,
                names=names,
            )

        return make


class _Outputs:
    """`groups.ports.Outputs` of a store: staged as in a Spark task, published together with the part in one unit."""

    def __init__(self, parts: StoreContext, streams: Streams, stage: Callable[[str], Stager]) -> None:
        self._parts = parts
        self._streams = streams
        self._stage = stage

    def stage(self, outputs: Mapping[str, Any]) -> list[Publication]:
        """Stage the batches durably."""
        made = []
        for name, data in outputs.items():
            stager = self._stage(name)
            stager.write(data)
            made.append(Publication(self._streams.get(name).id, stager.finish()))
        return made

    def publish(self, staged: Sequence[Any], part: Part, *, series: str, number: int) -> bool:
        """Publish the staged batches and the part together, once."""
        request = NumberedUnit(_series(series), number)
        first = publish(
            self._parts.catalog, self._parts.blobs, self._parts.runtime, staged, request=request, extra_parts=(part,)
        )
        self._parts.tail.notify()
        return first

    def last(self, series: str) -> int:
        """The number that was published last."""
        return last_published(self._parts.catalog, _series(series)) or 0

    def end(self, series: str) -> None:
        """Remove the record of a series."""
        end_series(self._parts.catalog, _series(series))


def _series(session: str) -> str:
    return f"group reader {session}"
