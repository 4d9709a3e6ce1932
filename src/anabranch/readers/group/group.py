"""A reader group as a whole: its readers, its checkpoints, how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import GroupState
from anabranch.core.notifications import GroupPicture
from anabranch.core.watermarks import TimeWindow, least
from anabranch.errors import GroupNotFound, InvalidArgument, NotFound, StreamNotFound
from anabranch.log.read import LogReader
from anabranch.log.sizes import segment_bytes
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.position import Position, StreamSegment
from anabranch.model.stream import StreamView
from anabranch.readers.group.checkpoints import GroupCheckpoints
from anabranch.readers.group.intake import Intake
from anabranch.readers.group.ports import Outputs, StoredPositions
from anabranch.readers.group.progress import DeliveryMode
from anabranch.readers.group.reader import GroupReader
from anabranch.readers.group.share import Share
from anabranch.readers.notifications.group import GroupListening, Listen
from anabranch.readers.synchronizer import StateSynchronizer
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    from anabranch.readers.group.audit import ReaderAudit, Source
    from anabranch.readers.group.elastic import ElasticReaders


@dataclass(frozen=True, slots=True)
class Unread:
    """What a group has still to read up to the tail, or to its end: events, their logical bytes, and the same of each
    segment that has any."""

    events: int
    bytes: int
    segments: Mapping[StreamSegment, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Who reads which segments now. `unassigned` are those that nobody reads: for a moment, or because no reader is open."""

    readers: Mapping[str, tuple[StreamSegment, ...]]
    unassigned: tuple[StreamSegment, ...]


class ReaderGroup(GroupCheckpoints, GroupListening):
    """A group of readers that share streams; see `Store.reader_group`. Thread-safe.

    What it says is as of the call. Cuts are by stream name, as the streams are called now. Raises GroupNotFound once it
    was deleted.
    """

    def __init__(
        self,
        name: str,
        shared: Callable[[], StateSynchronizer[GroupState]],
        catalog: Catalog,
        logs: LogReader,
        tail: Tail,
        runtime: Runtime,
        *,
        outputs: Outputs,
        keep: Callable[[GroupReader], None],
        forget: Callable[[GroupReader], None],
        delete: Callable[[], None],
        listen: Listen,
        window: Callable[[StreamId, StreamCut], TimeWindow],
    ) -> None:
        """`shared` opens the state, once more for each reader: a synchronizer is for one thread."""
        self.name = name
        self._open_shared = shared
        self._shared = shared()
        self._catalog = catalog
        self._logs = logs
        self._tail = tail
        self._runtime = runtime
        self._outputs = outputs
        self._keep = keep
        self._forget = forget
        self._delete = delete
        self._listen = listen
        self._window = window
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
        """Open a reader of this name; see `GroupReader`. One that is open under it, here or elsewhere, is taken over: it
        gets ReaderNotInGroup, and this one goes on from its accepted positions. Raises StreamNotFound, InvalidArgument.
        """
        if not isinstance(name, str) or not 0 < len(name) <= limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"a reader's name is text of 1 to {limits.NAME_CHARS_MAX} characters")
        if batch_rows < 1:
            raise InvalidArgument(f"a batch holds at least one row, not {batch_rows}")
        state = self._state()
        rows_max = min(batch_rows, limits.READER_ROWS_MAX)
        reader = GroupReader(
            Share(self.name, name, self._open_shared(), self._runtime),
            Intake(self._catalog, self._logs, state.streams, state.ends, rows_max=rows_max),
            self._tail,
            self._runtime,
            delivery=delivery,
            outputs=self._outputs,
            positions=positions,
            on_close=self._forget,
            window=self.time_window,
        )
        self._keep(reader)
        return reader

    def reader_offline(self, name: str, position: Position | str | None = None) -> None:
        """A reader is known to be dead: others go on with its segments now, not when its lease has run out. From
        `position` if the application knows that it got further than the group does; else from the accepted ones. A reader
        that is not there is let be, so this may be said twice. Raises InvalidCut for a position behind what there is to read."""
        given = Position.parse(position) if isinstance(position, str) else position
        offsets = {} if given is None else given.as_dict()
        if offsets:
            state = self._state()
            with self._catalog.reading() as reading:
                changes.check_given(state, offsets, self._views(reading, state))
        self._update(lambda state: changes.leave(changes.accept(state, name, offsets), [name]))

    def elastic(
        self,
        start: Callable[[str], None],
        stop: Callable[[str], None],
        *,
        readers_max: int,
        events_per_reader: int = 100_000,
        every_s: float = 1.0,
    ) -> ElasticReaders:
        """Have readers started and stopped as lag and segments change, looked at every `every_s` seconds; see
        `ElasticReaders`. One process of a group should do so."""
        from anabranch.readers.group.elastic import ElasticReaders

        return ElasticReaders(
            self,
            self._runtime,
            start,
            stop,
            readers_max=readers_max,
            events_per_reader=events_per_reader,
            every_s=every_s,
        )

    def audit(self, source: Source) -> ReaderAudit:
        """An account of what a reader is given, `for event in audit.over(reader)`: by writer, how old events were, which
        came twice and which are missing. `source` says of an event who wrote it, and as which of its key, counted up by
        one; None leaves it out."""
        from anabranch.readers.group.audit import ReaderAudit

        return ReaderAudit(self._runtime.clock, source)

    @property
    def readers(self) -> list[str]:
        """The names of the readers that are open, or not yet known to be dead."""
        return sorted(self._state().members)

    @property
    def streams(self) -> list[str]:
        """The names of its streams. Raises StreamNotFound where one was deleted."""
        state = self._state()
        with self._catalog.reading() as reading:
            return [str(view.info.name) for view in self._views(reading, state).values()]

    def distribution(self) -> Distribution:
        """Who reads which segments. Segments that are read to their ends are nobody's, and not counted."""
        state = self._state()
        with self._catalog.reading() as reading:
            live = state.live(self._views(reading, state))
        found: dict[str, list[StreamSegment]] = {name: [] for name in sorted(state.members)}
        free: list[StreamSegment] = []
        for segment in sorted(live):
            owner = state.owners.get(segment)
            (free if owner is None else found[owner]).append(segment)
        return Distribution({name: tuple(segments) for name, segments in found.items()}, tuple(free))

    # how far it is

    def cut(self) -> dict[str, StreamCut]:
        """Behind the last accepted events of each stream: who begins there reads what the group has not. A stream that was
        deleted is left out, so that another group can go on with the rest."""
        state = self._state()
        with self._catalog.reading() as reading:
            there = ((stream, reading.stream(stream)) for stream in state.streams)
            return {str(info.name): state.cut(stream) for stream, info in there if info is not None}

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """What the writers' noted times say of what the group has accepted of a stream: all that follows has times of at least
        `lower`. Without a stream, of all of them: the least. Raises NotFound for one that is none of the group's."""
        cuts_of = self.cut()
        if stream is not None and stream not in cuts_of:
            raise NotFound(f"group '{self.name}' does not read '{stream}' but {', '.join(sorted(cuts_of))}")
        chosen = cuts_of.values() if stream is None else [cuts_of[stream]]
        return least([self._window(cut.stream, cut) for cut in chosen])

    def unread(self) -> Unread:
        """What lies between the group's cut and the tail, or its end. Costs some catalog rows for each segment, whatever
        it holds. What was truncated is not counted."""
        state = self._state()
        segments: dict[StreamSegment, tuple[int, int]] = {}
        with self._catalog.reading() as reading:
            for stream, view in self._views(reading, state).items():
                for segment, low, high in _left(state, view):
                    size = segment_bytes(reading, view, segment, low, high)
                    segments[StreamSegment(stream, segment)] = (high - low, size)
        events, size = (sum(each[i] for each in segments.values()) for i in (0, 1))
        return Unread(events, size, segments)

    def delete(self) -> None:
        """Remove the group and its state. Its readers get GroupNotFound. A second delete is harmless."""
        self._delete()
        self._tail.notify()

    def _state(self) -> GroupState:
        with self._lock:
            try:
                return self._shared.fetch()
            except StreamNotFound as exc:
                raise GroupNotFound(self.name) from exc

    def _update(self, change: Callable[[GroupState], GroupState]) -> GroupState:
        with self._lock:
            try:
                return self._shared.update(change)
            except StreamNotFound as exc:
                raise GroupNotFound(self.name) from exc

    def _picture(self) -> GroupPicture:
        state = self._state()
        with self._catalog.reading() as reading:
            segments = {stream: len(view.current) for stream, view in self._views(reading, state).items()}
        return GroupPicture(self.name, segments, tuple(sorted(state.members)), state.ended)

    def _views(self, reading: Reading, state: GroupState) -> dict[StreamId, StreamView]:
        return {stream: load(reading, stream) for stream in state.streams}


def _left(state: GroupState, view: StreamView) -> list[tuple[SegmentId, int, int]]:
    here = state.cut(view.info.id)
    if cuts.below_head(view, here.as_dict()):
        here = cuts.raised(view, here)
    found = cuts.ranges(view, here, cuts.tail_cut(view))
    end = state.ends.get(view.info.id)
    if end is None:
        return list(found)
    return [(segment, low, min(high, end.get(segment, 0))) for segment, low, high in found if low < end.get(segment, 0)]
