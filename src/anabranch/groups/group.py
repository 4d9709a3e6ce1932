"""A reader group: its readers, its checkpoints, and its lag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.listener import GroupSummary
from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.display import Displayed
from anabranch.core.group import GroupState
from anabranch.core.watermarks import TimeWindow, common_bounds
from anabranch.errors import (
    GroupNotFound,
    GroupStreamDeleted,
    InvalidArgument,
    NotFound,
    ReaderNotInGroup,
    StreamNotFound,
)
from anabranch.groups.checkpoints import GroupCheckpoints
from anabranch.groups.cursor import GroupCursor
from anabranch.groups.hosted import HostedGroupReader
from anabranch.groups.load import Distribution, Unread
from anabranch.groups.membership import Membership, Opening
from anabranch.groups.ports import Outputs, StoredPositions
from anabranch.groups.progress import DeliveryMode
from anabranch.groups.reader import GroupReader
from anabranch.groups.reader_tools import ReaderTools
from anabranch.log.read import LogReader
from anabranch.log.sizes import segment_bytes
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.amounts import check_integer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName, check_free_name
from anabranch.model.position import Position, StreamSegment
from anabranch.model.stream import StreamView
from anabranch.notifications.group_events import GroupListening, Listen
from anabranch.notifications.subscription import Handler, Subscription
from anabranch.runtime.ports import Runtime
from anabranch.shared_state.synchronizer import StateSynchronizer

R = TypeVar("R", bound=GroupReader)


class ReaderGroup(GroupCheckpoints, GroupListening[Subscription], ReaderTools, Displayed):
    """A group of readers that share streams; see `Store.groups`. Thread-safe.

    Results are as of the call. Cuts are by stream name, under the current names of the streams. Raises GroupNotFound
    once the group was deleted.
    """

    def __init__(
        self,
        name: str,
        open_synchronizer: Callable[[], StateSynchronizer[GroupState]],
        catalog: Catalog,
        logs: LogReader,
        tail: Tail,
        runtime: Runtime,
        *,
        outputs: Outputs,
        on_open: Callable[[GroupReader], None],
        on_close: Callable[[GroupReader], None],
        delete: Callable[[], None],
        listen: Listen,
        window: Callable[[StreamId, StreamCut], TimeWindow],
        find: Callable[[str], StreamId],
    ) -> None:
        """`open_synchronizer` opens the group's state; it is called for each reader, since a synchronizer is for one
        thread. `find` looks up a stream by name, and raises StreamNotFound."""
        self.name = name
        self._open_synchronizer = open_synchronizer
        self._synchronizer = open_synchronizer()
        self._catalog = catalog
        self._logs = logs
        self._tail = tail
        self._runtime = runtime
        self._outputs = outputs
        self._on_open = on_open
        self._on_close = on_close
        self._delete = delete
        self._listen = listen
        self._window = window
        self._find = find
        self._lock = runtime.tasks.lock()

    # readers

    def reader(
        self,
        name: str,
        *,
        delivery: DeliveryMode = "at_least_once",
        positions: StoredPositions | None = None,
        batch_rows: int = limits.READER_ROWS_MAX,
    ) -> GroupReader:
        """Open a reader of this name; see `GroupReader`. If one is open under the name, here or elsewhere, it gets
        ReaderNotInGroup and this one continues from its accepted positions. Raises GroupStreamDeleted,
        InvalidArgument."""
        return self._opened(GroupReader, name, delivery, positions, batch_rows, None)

    def hosted_reader(
        self,
        name: str,
        opening: Opening,
        *,
        delivery: DeliveryMode = "at_least_once",
        positions: StoredPositions | None = None,
        batch_rows: int = limits.READER_ROWS_MAX,
    ) -> HostedGroupReader:
        """Open a reader whose consumer is in another process. One that was opened before by the same consumer is
        continued. Raises ReaderNotInGroup where another consumer has opened the name since, or the group was reset."""
        return self._opened(HostedGroupReader, name, delivery, positions, batch_rows, opening)

    def _opened(
        self,
        kind: type[R],
        name: str,
        delivery: DeliveryMode,
        positions: StoredPositions | None,
        batch_rows: int,
        opening: Opening | None,
    ) -> R:
        check_free_name(name, "reader")
        if check_integer("batch_rows", batch_rows) < 1:
            raise InvalidArgument(f"expected batch_rows of at least 1, got {batch_rows}")
        self._state()  # raises GroupNotFound
        while True:
            membership = Membership(self.name, name, self._open_synchronizer(), self._runtime, opening=opening)
            state = membership.state
            cursor = GroupCursor(
                self._catalog,
                self._logs,
                state.streams,
                state.ends,
                rows_max=min(batch_rows, limits.READER_ROWS_MAX),
                deleted=lambda: self._deleted_stream(self._state()),
            )
            try:
                reader = kind(
                    membership,
                    cursor,
                    self._tail,
                    self._runtime,
                    delivery=delivery,
                    outputs=self._outputs,
                    positions=positions,
                    on_close=self._on_close,
                    window=self.time_window,
                    series=None if opening is None else opening.consumer,
                )
                break
            except ReaderNotInGroup:
                if self._state().resets == state.resets or (opening is not None and opening.resets is not None):
                    raise  # it was taken over at once
        self._on_open(reader)
        return reader

    def reader_offline(self, name: str, position: Position | str | None = None) -> None:
        """Declare a reader dead: others take over its segments now instead of when its lease expires. They continue
        from `position`, if the application knows that the reader got further than its accepted positions, else from
        those. A reader that does not exist is ignored, so the call may be repeated. Raises InvalidCut for a position
        after the end of what can be read."""
        accepted = Position.parse(position) if isinstance(position, str) else position
        offsets = {} if accepted is None else accepted.as_dict()
        if offsets:
            state = self._state()
            with self._catalog.reading() as reading:
                changes.check_offsets(state, offsets, self._views(reading, state))
        self._update(lambda state: changes.leave(changes.accept(state, name, offsets), [name]))

    def _facts(self) -> Mapping[str, object]:
        state = self._synchronizer.state
        return {"name": self.name, "readers": sorted(state.members), "streams": len(state.streams)}

    @property
    def id(self) -> StreamId:
        """The id of the stream that holds its state: a group that is made again under its name has another one."""
        return self._synchronizer.stream.id

    @property
    def readers(self) -> list[str]:
        """The names of the readers that are open, or not yet presumed dead."""
        return sorted(self._state().members)

    @property
    def streams(self) -> list[str]:
        """The names of its streams. Raises GroupStreamDeleted."""
        state = self._state()
        with self._catalog.reading() as reading:
            return [str(view.info.name) for view in self._views(reading, state).values()]

    def distribution(self) -> Distribution:
        """Which reader has which segments. Segments that are read to their ends have no reader and are not included."""
        state = self._state()
        with self._catalog.reading() as reading:
            live = state.live(self._views(reading, state))
        found: dict[str, list[StreamSegment]] = {name: [] for name in sorted(state.members)}
        free: list[StreamSegment] = []
        for segment in sorted(live):
            owner = state.owners.get(segment)
            (free if owner is None else found[owner]).append(segment)
        return Distribution({name: tuple(segments) for name, segments in found.items()}, tuple(free))

    # progress and lag

    def cut(self) -> dict[str, StreamCut]:
        """The cut after the last accepted events of each stream: a reader that starts there reads what the group has
        not. Omits deleted streams, so that another group can continue with the rest."""
        state = self._state()
        with self._catalog.reading() as reading:
            infos = ((stream, reading.stream(stream)) for stream in state.streams)
            return {str(info.name): state.cut(stream) for stream, info in infos if info is not None}

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """The event-time window of what the group has accepted of a stream, from the times that writers noted: all
        later events have times of at least `lower`. Without a stream: the common bounds of all of them. Raises NotFound
        for a stream that the group does not read."""
        cuts_of = self.cut()
        if stream is not None and stream not in cuts_of:
            raise NotFound(
                f"group '{self.name}' does not read stream '{stream}'; it reads {', '.join(sorted(cuts_of))}"
            )
        chosen = cuts_of.values() if stream is None else [cuts_of[stream]]
        return common_bounds([self._window(cut.stream, cut) for cut in chosen])

    def unread(self) -> Unread:
        """The events between the group's cut and the tail, or its end. Costs some catalog rows for each segment,
        however many events it holds. Truncated events are not counted."""
        state = self._state()
        segments: dict[StreamSegment, tuple[int, int]] = {}
        with self._catalog.reading() as reading:
            for stream, view in self._views(reading, state).items():
                for segment, low, high in _unread_ranges(state, view):
                    size = segment_bytes(reading, view, segment, low, high)
                    segments[StreamSegment(stream, segment)] = (high - low, size)
        events, size = (sum(each[i] for each in segments.values()) for i in (0, 1))
        return Unread(events, size, segments)

    def delete(self) -> None:
        """Delete the group and its state. Its readers get GroupNotFound. A second delete is harmless."""
        self._delete()
        self._tail.notify()

    def _state(self) -> GroupState:
        with self._lock:
            try:
                return self._synchronizer.fetch()
            except StreamNotFound as exc:
                raise GroupNotFound(self.name) from exc

    def _update(self, change: Callable[[GroupState], GroupState]) -> GroupState:
        with self._lock:
            try:
                return self._synchronizer.update(change)
            except StreamNotFound as exc:
                raise GroupNotFound(self.name) from exc

    def _subscribe(self, kind: str, handle: Handler, name: str | None) -> Subscription:
        return self._listen(self._summary, kind, handle, name)

    def _summary(self) -> GroupSummary:
        state = self._state()
        with self._catalog.reading() as reading:
            segments = {stream: len(view.current) for stream, view in self._views(reading, state).items()}
        return GroupSummary(self.name, segments, tuple(sorted(state.members)), state.ended)

    def _views(self, reading: Reading, state: GroupState) -> dict[StreamId, StreamView]:
        try:
            return {stream: load(reading, stream) for stream in state.streams}
        except StreamNotFound as exc:
            raise (self._deleted_stream(state, reading) or exc) from None

    def _deleted_stream(self, state: GroupState, reading: Reading | None = None) -> GroupStreamDeleted | None:
        """The error for the first stream of the group that was deleted; None if none was."""
        if reading is None:
            with self._catalog.reading() as opened:
                return self._deleted_stream(state, opened)
        deleted = next((stream for stream in state.streams if reading.stream(stream) is None), None)
        if deleted is None:
            return None
        name = state.names.get(deleted)
        remade = name is not None and reading.stream(StreamName.parse(name)) is not None
        return GroupStreamDeleted(self.name, name or f"{deleted:016x}", remade=remade)


def _unread_ranges(state: GroupState, view: StreamView) -> list[tuple[SegmentId, int, int]]:
    cut = state.cut(view.info.id)
    if cuts.below_head(view, cut.as_dict()):
        cut = cuts.clamp_to_head(view, cut)
    found = cuts.ranges(view, cut, cuts.tail_cut(view))
    end = state.ends.get(view.info.id)
    if end is None:
        return list(found)
    return [(segment, low, min(high, end.get(segment, 0))) for segment, low, high in found if low < end.get(segment, 0)]
