"""The checkpoints of a reader group, and resetting it to a checkpoint or another position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import Checkpoint, GroupState
from anabranch.errors import GroupStreamDeleted, InvalidArgument, NotFound, StreamNotFound
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.log.view import load
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import check_free_name
from anabranch.model.position import StreamSegment
from anabranch.model.seconds import wait_seconds
from anabranch.model.stream import StreamView
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place, parse_place, to_cut
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.arguments import stream_list

# Where a group stops reading: a place for every stream, or for some of them by name; the others have no end.
End: TypeAlias = Place | Mapping[str, Place | None] | None


class GroupCheckpoints:
    """The part of `ReaderGroup` that collects its readers' positions as checkpoints, and resets them."""

    name: str
    _catalog: Catalog
    _logs: LogReader
    _tail: Tail
    _runtime: Runtime
    _find: Callable[[str], StreamId]

    def _state(self) -> GroupState:
        raise NotImplementedError

    def _update(self, change: Callable[[GroupState], GroupState]) -> GroupState:
        raise NotImplementedError

    def _views(self, reading: Reading, state: GroupState) -> dict[StreamId, StreamView]:
        raise NotImplementedError

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete checkpoints that are kept, the oldest first: the last `limits.CHECKPOINTS_KEPT`."""
        return [each for each in self._state().checkpoints if not each.silent]

    def checkpoint(self, name: str, *, timeout_s: float = 60.0) -> Checkpoint:
        """Start a checkpoint and return it when every reader has reached it. A checkpoint is a cut of every stream; all
        events that a reader had handed out when it reached the checkpoint lie before the cut. Readers do not wait for
        each other.

        A reader reaches it when it requests more events. Several checkpoints may be pending, up to
        `limits.CHECKPOINTS_PENDING_MAX`; they are collected in the order in which they were begun. Raises TimeoutError
        where it is not complete within `timeout_s` seconds; the checkpoint then stays pending, and will be among
        `checkpoints`, unless it is cancelled. Raises AlreadyExists where one of this name is kept, Conflict where too
        many are pending, NotFound where it was cancelled, or dropped by a reset, InvalidArgument for an invalid name or time.
        """
        limit_s = wait_seconds("timeout_s", timeout_s)
        return self._collect(check_free_name(name, "checkpoint"), limit_s, silent=False)

    def generate_cut(self, *, timeout_s: float = 60.0) -> dict[str, StreamCut]:
        """A cut of each stream, by name, after all events that the readers have processed. It is as precise as a
        checkpoint, whereas `cut` returns what was accepted some moments ago. It is collected like a checkpoint, but
        `on_checkpoint` is not called for it, it is not kept, and it waits for pending checkpoints. Raises TimeoutError
        where a reader does not request more events within `timeout_s` seconds, InvalidArgument."""
        limit_s = wait_seconds("timeout_s", timeout_s)
        name = f"cut-{token(self._runtime.ids)}"
        try:
            checkpoint = self._collect(name, limit_s, silent=True)
        finally:
            state = self._update(lambda state: changes.forget_checkpoint(state, name))
        with self._catalog.reading() as reading:
            return {str(view.info.name): checkpoint.cut(stream) for stream, view in self._views(reading, state).items()}

    def cancel_checkpoint(self, name: str | None = None) -> None:
        """Drop the pending checkpoint of this name (None: all pending ones), for example if a reader never reaches it.
        Harmless where none is pending."""
        self._update(lambda state: changes.cancel_checkpoint(state, name))
        self._tail.notify()

    def _collect(self, name: str, timeout_s: float, *, silent: bool) -> Checkpoint:
        deadline = self._runtime.clock.monotonic() + timeout_s

        def begin() -> GroupState:
            now = Micros(self._runtime.clock.now())
            return self._update(lambda state: changes.begin_checkpoint(state, self.name, name, now, silent=silent))

        state = begin()
        while True:
            generation = self._tail.generation()
            if (checkpoint := _find_checkpoint(state, name)) is not None:
                return checkpoint
            first = state.checkpoint
            if first is not None and not first.waiting:
                state = self._advance()
                continue
            if first is None or all(each.name != name for each in state.pending):
                if not silent:
                    raise NotFound(
                        f"checkpoint '{name}' of group '{self.name}' was dropped before it was complete: it was"
                        " cancelled, or the group was reset"
                    )
                if len(state.pending) < limits.CHECKPOINTS_PENDING_MAX:
                    state = begin()
                    continue
            assert first is not None, "the maximum number of checkpoints is pending"
            waiting = ", ".join(sorted(first.waiting)) if first.name == name else f"checkpoint '{first.name}'"
            remaining_s = deadline - self._runtime.clock.monotonic()
            if remaining_s <= 0:
                what = "the cut" if silent else f"checkpoint '{name}'"
                raise TimeoutError(f"{what} of group '{self.name}' is still waiting for {waiting} after {timeout_s} s")
            self._tail.wait(generation, remaining_s)
            state = self._state()

    def _advance(self) -> GroupState:
        state = self._state()
        with self._catalog.reading() as reading:
            views = self._views(reading, state)

        def change(latest: GroupState) -> GroupState:
            # If it was reset to other streams meanwhile, no checkpoint is pending.
            return changes.advance(latest, views) if latest.streams == state.streams else latest

        return self._update(change)

    def rewind(self) -> None:
        """Restart from the positions the group was created with; see `reset`."""
        self._update(lambda state: changes.reset(state, state.starts))

    def reset(
        self,
        to: str | Checkpoint | Place | Mapping[str, Place] | None = None,
        *,
        streams: Sequence[str] | str | None = None,
        end: End | Literal["unchanged"] = "unchanged",
        by: TimeKind = "append",
    ) -> None:
        """Continue from another position. All readers get ReaderNotInGroup and must be opened again.

        `to` is a checkpoint or its name, one place for every stream (HEAD, TAIL, a time), or a place for each stream by
        name, such as the result of `cut`. Without it: the last complete checkpoint, or before the first one the
        positions the group was created with. `streams` are the streams to read from now on; None: the same. `end` is
        how far they are read, as for `Store.groups.open`; None: with no end.

        A stream that was deleted and created again is read from its head, with no end, unless `to` or `end` says
        otherwise. A stream without a position in the checkpoint is read in the same way.

        Raises NotFound for a checkpoint that is not kept, StreamNotFound, GroupStreamDeleted for a deleted stream that
        was not made again, InvalidCut, Truncated, InvalidArgument.
        """
        state = self._state()
        views = self._views_after_reset(state, streams)
        offsets = self._offsets(state, views, to, by)
        names = {view.info.id: str(view.info.name) for view in views}
        ends = None if end == "unchanged" else ends_at(self._logs, views, end, by=by)
        self._update(lambda state: changes.reset(state, offsets, names=names, ends=ends))

    def _views_after_reset(self, state: GroupState, streams: Sequence[str] | str | None) -> list[StreamView]:
        """The streams of these names; None means the streams of the group, where a deleted one is replaced by the new
        one of its name."""
        named = stream_list(streams)
        if named is None:
            with self._catalog.reading() as reading:
                ids = [stream if reading.stream(stream) is not None else None for stream in state.streams]
            found = [each or self._find_again(state, stream) for each, stream in zip(ids, state.streams, strict=True)]
        else:
            found = [self._find(str(each)) for each in named]
            if not found or len(set(found)) != len(found):
                raise InvalidArgument(f"expected streams= to name each stream once, and at least one, got {streams}")
        with self._catalog.reading() as reading:
            return [load(reading, stream) for stream in dict.fromkeys(found)]

    def _find_again(self, state: GroupState, stream: StreamId) -> StreamId:
        name = state.names.get(stream)
        try:
            if name is not None:
                return self._find(name)
        except StreamNotFound:
            pass
        raise GroupStreamDeleted(self.name, name or f"{stream:016x}")

    def _offsets(
        self,
        state: GroupState,
        views: Sequence[StreamView],
        to: str | Checkpoint | Place | Mapping[str, Place] | None,
        by: TimeKind,
    ) -> dict[StreamSegment, int]:
        checkpoint = to if isinstance(to, Checkpoint) else None
        if isinstance(to, str):
            checkpoint = _find_checkpoint(state, to)
        if to is not None and checkpoint is None:
            return self._offsets_at(state, views, to, by)
        checkpoint = checkpoint or state.last_checkpoint
        offsets = {} if checkpoint is None else dict(checkpoint.offsets)
        if to is None:
            streams = {each.stream for each in offsets}
            offsets |= {each: offset for each, offset in state.starts.items() if each.stream not in streams}
        found: dict[StreamSegment, int] = {}
        for view in views:
            stream_offsets = {each: offset for each, offset in offsets.items() if each.stream == view.info.id}
            found |= stream_offsets or offsets_at(self._logs, [view], HEAD)
        return found

    def _offsets_at(
        self,
        state: GroupState,
        views: Sequence[StreamView],
        to: str | Checkpoint | Place | Mapping[str, Place],
        by: TimeKind,
    ) -> dict[StreamSegment, int]:
        assert not isinstance(to, Checkpoint), "it was found"
        try:
            return offsets_at(self._logs, views, to, by=by)
        except InvalidArgument as exc:
            if isinstance(to, str):
                kept = ", ".join(each.name for each in state.checkpoints) or "none"
                raise NotFound(
                    f"expected a time, HEAD, TAIL or a checkpoint of group '{self.name}' (kept: {kept}), got '{to}'"
                ) from exc
            raise


def offsets_at(
    logs: LogReader,
    views: Sequence[StreamView],
    place: Place | Mapping[str, Place],
    *,
    by: TimeKind = "append",
) -> dict[StreamSegment, int]:
    """A place in every stream, or one for each by name, as positions of a group. Raises InvalidArgument where the
    mapping names other streams, and what `to_cut` raises."""
    names = {str(view.info.name) for view in views}
    if isinstance(place, Mapping) and place.keys() != names:
        raise InvalidArgument(
            f"expected a place for each of {', '.join(sorted(names))}, got places for {', '.join(sorted(place))}"
        )
    found: dict[StreamSegment, int] = {}
    for view in views:
        target = place[str(view.info.name)] if isinstance(place, Mapping) else place
        cut = to_cut(logs, view, target, by=by)
        # In its furthest form: segments that are read to their ends are replaced by their successors.
        settled = cuts.skip_exhausted(view, cut.as_dict())
        found |= {StreamSegment(view.info.id, segment): offset for segment, offset in settled.items()}
    return found


def ends_at(
    logs: LogReader, views: Sequence[StreamView], end: End, *, by: TimeKind = "append"
) -> dict[StreamId, dict[SegmentId, int]]:
    """The end offset of each segment, for the streams that are read up to a place. `end` is one place for every stream,
    or a place for some of them, by name. A cut may be ahead of the tail. Raises InvalidArgument where the mapping names
    other streams, and what `to_cut` raises."""
    by_name = {str(view.info.name): view for view in views}
    places = end if isinstance(end, Mapping) else dict.fromkeys(by_name, end)
    if not places.keys() <= by_name.keys():
        raise InvalidArgument(
            f"expected ends for streams of the group ({', '.join(sorted(by_name))}), got {', '.join(sorted(places))}"
        )
    found = {}
    for name, place in places.items():
        if place is None:
            continue
        view = by_name[name]
        target = parse_place(place, logs.times) if isinstance(place, str) else place
        cut = target if isinstance(target, StreamCut) else to_cut(logs, view, target, by=by)
        found[view.info.id] = cuts.end_offsets(view, cut)
    return found


def _find_checkpoint(state: GroupState, name: str) -> Checkpoint | None:
    return next((each for each in state.checkpoints if each.name == name), None)
