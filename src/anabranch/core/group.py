"""The shared state of a reader group, and every change of it. Pure: each function returns a new state.

At any moment, the positions in a stream are a cut: each segment being read, with the offset after its last accepted
event. When all segments that hand over a key range are read to their ends, they leave the cut and their successors
enter it at their heads (`core.cuts.skip_exhausted`). So balancing never breaks the order of events.

A checkpoint is a cut too, but it is collected: each reader adds its own offsets when it reaches the checkpoint. While a
checkpoint is collected, two things wait, because otherwise the cut could contain an event without those of its key that
precede it. Successors do not enter, and a segment whose offset was added is assigned only to a reader that has added
its own. Several checkpoints may be pending. They are collected one after another, in the order in which they were
begun, so that successors can enter in between, however many follow each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from anabranch import limits
from anabranch.core import cuts
from anabranch.core.assignment import plan_moves
from anabranch.errors import AlreadyExists, Conflict, InvalidCut, ReaderNotInGroup
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView

Views = Mapping[StreamId, StreamView]
Offsets = Mapping[StreamSegment, int]


@dataclass(frozen=True, slots=True)
class Member:
    """An open reader. `session` differs each time the name is opened; `heartbeats` counts its heartbeats."""

    session: str
    heartbeats: int
    joined_at: Micros


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named position of a group, begun at `started_at`. While it is collected, `waiting` are the readers that have
    not reached it yet. It is complete when `waiting` is empty; then `offsets` holds a cut of every stream. A `silent`
    checkpoint is visible only to the caller that began it."""

    name: str
    started_at: Micros
    offsets: Offsets
    waiting: frozenset[str] = frozenset()
    silent: bool = False

    @property
    def streams(self) -> frozenset[StreamId]:
        """The streams that the checkpoint has positions in."""
        return frozenset(each.stream for each in self.offsets)

    def cut(self, stream: StreamId) -> StreamCut:
        """The checkpoint's cut of one stream."""
        return cut_of(self.offsets, stream)


@dataclass(frozen=True, slots=True)
class GroupState:
    """All that the readers of a group share.

    `starts` is where a rewound group begins. `ends`, for streams that are read up to an end, is how far each segment is
    read (segments after the end are missing); an end may be ahead of the tail. A reader without a heartbeat for
    `lease_us` is presumed dead. `refresh_us` is how often a reader reads the state and reports its position.
    `checkpoint_us` is how often a checkpoint begins automatically, 0: never. `pending` are the checkpoints that are not
    complete, in the order in which they were begun; `checkpoints` the complete ones that are kept. `names` are the
    streams' names when a reader last joined: a stream that was deleted and created again is found by its name. `resets`
    counts how often all readers were removed by a reset. `ended` is True once everything was read and nothing can
    follow; only a reset undoes that."""

    streams: tuple[StreamId, ...]
    starts: Offsets
    ends: Mapping[StreamId, Mapping[SegmentId, int]]
    positions: Offsets
    lease_us: int = limits.READER_LEASE_US
    refresh_us: int = limits.READER_REFRESH_US
    checkpoint_us: int = 0
    owners: Mapping[StreamSegment, str] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    pending: tuple[Checkpoint, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    names: Mapping[StreamId, str] = field(default_factory=dict)
    resets: int = 0
    ended: bool = False

    @property
    def last_checkpoint(self) -> Checkpoint | None:
        """The last complete checkpoint that is not silent."""
        return next((each for each in reversed(self.checkpoints) if not each.silent), None)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint that is being collected: the first of the pending ones."""
        return self.pending[0] if self.pending else None

    def cut(self, stream: StreamId) -> StreamCut:
        """The cut after the last accepted event of each segment of one stream."""
        return cut_of(self.positions, stream)

    def owned(self, reader: str) -> dict[StreamSegment, int]:
        """The segments of a reader, each with the offset it reads from."""
        return {segment: self.positions[segment] for segment, owner in self.owners.items() if owner == reader}

    def stop(self, view: StreamView, segment: SegmentId) -> int:
        """The offset after the last event of a segment that can be read now."""
        length, end = view.length(segment), self.ends.get(view.info.id)
        return length if end is None else min(length, end.get(segment, 0))

    def live(self, views: Views) -> set[StreamSegment]:
        """The segments being read that have events left, or may get some."""
        return {
            each for each, offset in self.positions.items() if self._may_have_events(views[each.stream], each, offset)
        }

    def _may_have_events(self, view: StreamView, each: StreamSegment, offset: int) -> bool:
        if each.segment not in view.segments:
            return True  # truncated: a reader has to notice it
        end = self.ends.get(each.stream)
        if end is not None and offset >= end.get(each.segment, 0):
            return False
        return offset < view.length(each.segment) or not view.sealed(each.segment)

    def finished(self, views: Views) -> bool:
        """True if every stream is read to its end and nothing can follow."""
        return self.checkpoint is None and not _skip_exhausted(self, views).live(views)

    def lag(self, views: Views) -> dict[StreamSegment, int]:
        """How many events each segment being read is behind; events in its successors do not count."""
        found = {}
        for each, offset in self.positions.items():
            view = views[each.stream]
            found[each] = max(0, self.stop(view, each.segment) - offset) if each.segment in view.segments else 0
        return found


def cut_of(offsets: Offsets, stream: StreamId) -> StreamCut:
    """The offsets of one stream, as a cut."""
    return StreamCut.of(stream, {each.segment: offset for each, offset in offsets.items() if each.stream == stream})


def offsets_of(cut: StreamCut) -> dict[StreamSegment, int]:
    """A cut as positions of a group."""
    return {StreamSegment(cut.stream, segment): offset for segment, offset in cut}


# changes by a reader


def join(
    state: GroupState, reader: str, session: str, now: Micros, names: Mapping[StreamId, str] | None = None
) -> GroupState:
    """A reader opens. An open reader of the same name is taken over: it is refused from now on, and its segments
    continue from their accepted positions. `names` are the streams' current names."""
    stream_names = {
        stream: (names or {}).get(stream, name) for stream, name in {**(names or {}), **state.names}.items()
    }
    stream_names = {stream: name for stream, name in stream_names.items() if stream in state.streams}
    return replace(state, members={**state.members, reader: Member(session, 0, now)}, names=stream_names)


def require_member(state: GroupState, group: str, reader: str, session: str) -> None:
    """Raise ReaderNotInGroup unless this session of the reader is the current one."""
    member = state.members.get(reader)
    if member is None or member.session != session:
        raise ReaderNotInGroup(group, reader)


def accept(state: GroupState, reader: str, offsets: Offsets) -> GroupState:
    """Advance the positions of a reader's segments. They never go back; segments of other readers are ignored."""
    positions = dict(state.positions)
    for segment, offset in offsets.items():
        if state.owners.get(segment) == reader and segment in positions:
            positions[segment] = max(positions[segment], offset)
    return state if positions == state.positions else replace(state, positions=positions)


def check_offsets(state: GroupState, offsets: Offsets, views: Views) -> None:
    """Raise InvalidCut if an offset given by a caller is after all events to be read in its segment: accepting it would
    skip later events. Streams and segments that don't belong to the group are ignored."""
    for each, offset in offsets.items():
        view = views.get(each.stream)
        if view is not None and each.segment in view.segments and offset > state.stop(view, each.segment):
            stop = state.stop(view, each.segment)
            raise InvalidCut(
                f"expected an offset of at most {stop}, the end of what can be read of segment {each}; got {offset}"
            )


def record_heartbeat(state: GroupState, reader: str) -> GroupState:
    """Record a heartbeat."""
    member = state.members[reader]
    return replace(state, members={**state.members, reader: replace(member, heartbeats=member.heartbeats + 1)})


def leave(state: GroupState, readers: Collection[str]) -> GroupState:
    """Remove readers; their segments become unowned. Unknown names are ignored."""
    if not any(reader in state.members for reader in readers):
        return state
    checkpoint = state.checkpoint
    if checkpoint is not None:
        state = _update_checkpoint(state, replace(checkpoint, waiting=checkpoint.waiting.difference(readers)))
    return replace(
        state,
        members={name: member for name, member in state.members.items() if name not in readers},
        owners={segment: owner for segment, owner in state.owners.items() if owner not in readers},
    )


def rebalance(state: GroupState, reader: str, views: Views, keep: Collection[StreamSegment] = ()) -> GroupState:
    """Release and take segments for one reader, as `core.assignment` plans. The reader keeps the segments in `keep`."""
    live = state.live(views)
    owners = {segment: owner for segment, owner in state.owners.items() if segment in live or segment in keep}
    give_up, take = plan_moves(
        reader, state.members, {each: owners.get(each) for each in live}, state.lag(views), keep=keep
    )
    owners = {segment: owner for segment, owner in owners.items() if segment not in give_up}
    owners |= {segment: reader for segment in take if _may_take(state, reader, segment)}
    if owners == state.owners:
        return state
    state = replace(state, owners=owners)
    checkpoint = state.checkpoint
    if checkpoint is not None and reader not in checkpoint.waiting:
        missing = {each: offset for each, offset in state.owned(reader).items() if each not in checkpoint.offsets}
        state = _update_checkpoint(state, replace(checkpoint, offsets={**checkpoint.offsets, **missing}))
    return state


def _may_take(state: GroupState, reader: str, segment: StreamSegment) -> bool:
    checkpoint = state.checkpoint
    return checkpoint is None or segment not in checkpoint.offsets or reader not in checkpoint.waiting


# changes by the streams


def advance(state: GroupState, views: Views) -> GroupState:
    """Replace segments that were read to their ends by their successors, and complete checkpoints that wait for no
    reader."""
    while (checkpoint := state.checkpoint) is not None:
        if checkpoint.waiting:
            return state
        complete = replace(checkpoint, offsets={**state.positions, **checkpoint.offsets})
        queued, kept = state.pending[1:], _latest_checkpoints((*state.checkpoints, complete))
        state = _collect_first(_skip_exhausted(replace(state, pending=(), checkpoints=kept), views), queued)
    state = _skip_exhausted(state, views)
    # `ended` is never reset here: a view older than the state must not report the end a second time.
    return state if state.ended or state.live(views) else replace(state, ended=True)


def _latest_checkpoints(checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """The last `limits.CHECKPOINTS_KEPT` silent checkpoints, and as many others. Silent ones are left over only from
    processes that were killed: otherwise the process that began one removes it."""
    kept: list[Checkpoint] = []
    for each in reversed(checkpoints):
        if sum(other.silent == each.silent for other in kept) < limits.CHECKPOINTS_KEPT:
            kept.append(each)
    return tuple(reversed(kept))


def _skip_exhausted(state: GroupState, views: Views) -> GroupState:
    positions: dict[StreamSegment, int] = {}
    for stream in state.streams:
        cut = state.cut(stream).as_dict()
        if cuts.below_head(views[stream], cut):
            positions |= {StreamSegment(stream, segment): offset for segment, offset in cut.items()}
        else:
            skipped = cuts.skip_exhausted(views[stream], cut)
            positions |= {StreamSegment(stream, segment): offset for segment, offset in skipped.items()}
    if positions == state.positions:
        return state
    owners = {segment: owner for segment, owner in state.owners.items() if segment in positions}
    return replace(state, positions=positions, owners=owners)


def skip_truncated(state: GroupState, views: Views) -> GroupState:
    """Move positions that are before a stream's head to the head. The events in between are lost to the group."""
    positions = dict(state.positions)
    for stream in state.streams:
        cut, view = state.cut(stream), views[stream]
        if any(segment.epoch > view.info.epoch for segment, _ in cut):
            continue  # the view is older than the state: a reader with a newer view will do this
        if cuts.below_head(view, cut.as_dict()):
            positions = {each: offset for each, offset in positions.items() if each.stream != stream}
            positions |= offsets_of(cuts.clamp_to_head(view, cut))
    if positions == state.positions:
        return state
    owners = {segment: owner for segment, owner in state.owners.items() if segment in positions}
    moved = replace(state, positions=positions, owners=owners)
    return _collect_first(moved, state.pending[1:])


# checkpoints


def begin_checkpoint(state: GroupState, group: str, name: str, now: Micros, *, silent: bool = False) -> GroupState:
    """Begin a checkpoint that all readers have to reach after the pending checkpoints. If a checkpoint of this name is
    pending, nothing changes. Raises AlreadyExists if a complete checkpoint of this name is kept, and Conflict if
    `limits.CHECKPOINTS_PENDING_MAX` are pending; if `silent`, nothing changes then."""
    if any(each.name == name for each in state.pending):
        return state
    existing = next((each for each in state.checkpoints if each.name == name), None)
    if existing is not None and existing.started_at == now:
        return state  # a retry: its first attempt began the checkpoint, and others have completed it since
    if existing is not None:
        raise AlreadyExists(f"group '{group}' already has a checkpoint '{name}'")
    if len(state.pending) >= limits.CHECKPOINTS_PENDING_MAX:
        if silent:
            return state
        pending = ", ".join(each.name for each in state.pending)
        raise Conflict(f"group '{group}' has {len(state.pending)} checkpoints pending, the maximum: {pending}")
    return _collect_first(state, (*state.pending, Checkpoint(name, now, {}, silent=silent)))


def cancel_checkpoint(state: GroupState, name: str | None = None) -> GroupState:
    """Cancel the pending checkpoint of this name; all pending ones if the name is None."""
    kept = tuple(each for each in state.pending if name not in (None, each.name))
    return state if kept == state.pending else _collect_first(state, kept)


def forget_checkpoint(state: GroupState, name: str) -> GroupState:
    """Cancel the checkpoint, or remove it if it is complete. An unknown name is ignored."""
    state = cancel_checkpoint(state, name)
    return replace(state, checkpoints=tuple(each for each in state.checkpoints if each.name != name))


def _collect_first(state: GroupState, pending: tuple[Checkpoint, ...]) -> GroupState:
    """Make these the pending checkpoints. If the first one was not being collected yet, all present readers now have to
    reach it."""
    if pending and pending[:1] != state.pending[:1]:
        pending = (replace(pending[0], waiting=frozenset(state.members)), *pending[1:])
    return replace(state, pending=pending)


def _update_checkpoint(state: GroupState, checkpoint: Checkpoint) -> GroupState:
    """Replace the checkpoint that is being collected."""
    return replace(state, pending=(checkpoint, *state.pending[1:]))


def checkpoint_due(state: GroupState, now: Micros) -> bool:
    """True if a checkpoint should begin automatically."""
    if not state.checkpoint_us or state.checkpoint is not None:
        return False
    last = (
        state.checkpoints[-1].started_at
        if state.checkpoints
        else min((m.joined_at for m in state.members.values()), default=now)
    )
    return now - last >= state.checkpoint_us


def reach_checkpoint(state: GroupState, reader: str) -> GroupState:
    """Add the accepted positions of a reader's segments to the checkpoint. If the checkpoint does not
    wait for the reader, nothing changes."""
    checkpoint = state.checkpoint
    if checkpoint is None or reader not in checkpoint.waiting:
        return state
    offsets = {**checkpoint.offsets, **state.owned(reader)}
    return _update_checkpoint(state, replace(checkpoint, offsets=offsets, waiting=checkpoint.waiting - {reader}))


def reset(
    state: GroupState,
    positions: Offsets,
    *,
    names: Mapping[StreamId, str] | None = None,
    ends: Mapping[StreamId, Mapping[SegmentId, int]] | None = None,
) -> GroupState:
    """Continue from other positions. All readers are removed, and what they read since their accepted positions does
    not count. `names` are the streams to read from now on, and `ends` how far each is read; None: unchanged. For a
    stream that is new to the group, its position is also where a later rewind begins."""
    streams = state.streams if names is None else tuple(names)
    starts = {each: offset for each, offset in state.starts.items() if each.stream in streams}
    started = {each.stream for each in starts}
    starts |= {each: offset for each, offset in positions.items() if each.stream not in started}
    kept = state.ends if ends is None else ends
    return replace(
        state,
        streams=streams,
        names=state.names if names is None else dict(names),
        starts=starts,
        ends={stream: end for stream, end in kept.items() if stream in streams},
        positions=dict(positions),
        owners={},
        members={},
        pending=(),
        resets=state.resets + 1,
        ended=False,
    )
