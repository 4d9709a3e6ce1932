"""The shared state of a reader group, and every change of it. Pure: what is asked is answered with another state.

Per stream the positions are a cut at any moment: each segment in reading with the offset behind its last accepted
event. When all segments that hand a key range over are read to their ends, they leave the cut and their successors
enter it at their heads (`core.cuts.settle`), so no order of events is ever given up to balance.

A checkpoint is a cut too, but gathered: each reader adds its own offsets when it comes to it, and while it is gathered
two things wait, or the cut would hold an event in one segment without what precedes it: successors do not enter,
and a segment that has its offset in it goes only to a reader that has added its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from anabranch import limits
from anabranch.core import cuts
from anabranch.core.assignment import moves
from anabranch.errors import AlreadyExists, InvalidCut, ReaderNotInGroup
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView

Views = Mapping[StreamId, StreamView]
Offsets = Mapping[StreamSegment, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A reader that is open. `session` differs for each opening of the name; `beat` counts its signs of life."""

    session: str
    beat: int
    joined_at: Micros


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named place of a group, begun at `at`. `waiting` are the readers that have not come to it yet; it is complete
    when there are none, and then `offsets` holds a cut of every stream. A `silent` one is nobody's business but of who began it."""

    name: str
    at: Micros
    offsets: Offsets
    waiting: frozenset[str] = frozenset()
    silent: bool = False

    def cut(self, stream: StreamId) -> StreamCut:
        """Its cut of one stream."""
        return cut_of(self.offsets, stream)


@dataclass(frozen=True, slots=True)
class GroupState:
    """All that the readers of a group share. `starts` is where a rewound group begins; `ends`, for streams that are
    read to an end, how far each segment is read there (segments behind the end are missing). `lease_us`: a reader that
    gives no sign of life for so long is presumed dead. `refresh_us`: how often a reader looks and tells. `checkpoint_us`: how often a checkpoint begins by itself, 0: never.
    `resets` counts how often all readers were sent away. `ended` once everything was read and nothing can follow; only
    a reset takes that back."""

    streams: tuple[StreamId, ...]
    starts: Offsets
    ends: Mapping[StreamId, Mapping[SegmentId, int]]
    positions: Offsets
    lease_us: int = limits.READER_LEASE_US
    refresh_us: int = limits.READER_REFRESH_US
    checkpoint_us: int = 0
    owners: Mapping[StreamSegment, str] = field(default_factory=dict)
    members: Mapping[str, Member] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    resets: int = 0
    ended: bool = False

    def cut(self, stream: StreamId) -> StreamCut:
        """Behind the last accepted event of each segment of one stream."""
        return cut_of(self.positions, stream)

    def owned(self, reader: str) -> dict[StreamSegment, int]:
        """The segments of a reader, and from where it reads them."""
        return {segment: self.positions[segment] for segment, owner in self.owners.items() if owner == reader}

    def stop(self, view: StreamView, segment: SegmentId) -> int:
        """The offset behind the last event of a segment that is there to be read now."""
        length, end = view.length(segment), self.ends.get(view.info.id)
        return length if end is None else min(length, end.get(segment, 0))

    def live(self, views: Views) -> set[StreamSegment]:
        """The segments in reading that have events left, or may get some."""
        return {each for each, offset in self.positions.items() if self._may_yield(views[each.stream], each, offset)}

    def _may_yield(self, view: StreamView, each: StreamSegment, offset: int) -> bool:
        if each.segment not in view.segments:
            return True  # truncated away: somebody has to notice
        end = self.ends.get(each.stream)
        if end is not None and offset >= end.get(each.segment, 0):
            return False
        return offset < view.length(each.segment) or not view.sealed(each.segment)

    def finished(self, views: Views) -> bool:
        """True if every stream is read to its end, so that nothing can follow."""
        return self.checkpoint is None and not _settled(self, views).live(views)

    def lag(self, views: Views) -> dict[StreamSegment, int]:
        """How many events each segment in reading is behind; what its successors hold does not count."""
        found = {}
        for each, offset in self.positions.items():
            view = views[each.stream]
            found[each] = max(0, self.stop(view, each.segment) - offset) if each.segment in view.segments else 0
        return found


def cut_of(offsets: Offsets, stream: StreamId) -> StreamCut:
    """The part of a mapping that is one stream's."""
    return StreamCut.of(stream, {each.segment: offset for each, offset in offsets.items() if each.stream == stream})


def offsets_of(cut: StreamCut) -> dict[StreamSegment, int]:
    """A cut as a part of a group's positions."""
    return {StreamSegment(cut.stream, segment): offset for segment, offset in cut}


# a reader's own changes


def join(state: GroupState, reader: str, session: str, now: Micros) -> GroupState:
    """A reader opens. One of its name that is open still is taken over: it is refused from now on, and its segments go on
    from their accepted positions."""
    return replace(state, members={**state.members, reader: Member(session, 0, now)})


def need_member(state: GroupState, group: str, reader: str, session: str) -> None:
    """Raise ReaderNotInGroup unless this opening of the reader is the one that counts."""
    member = state.members.get(reader)
    if member is None or member.session != session:
        raise ReaderNotInGroup(group, reader)


def accept(state: GroupState, reader: str, offsets: Offsets) -> GroupState:
    """Move the positions of a reader's segments on. They never go back; segments of others are left out."""
    positions = dict(state.positions)
    for segment, offset in offsets.items():
        if state.owners.get(segment) == reader and segment in positions:
            positions[segment] = max(positions[segment], offset)
    return state if positions == state.positions else replace(state, positions=positions)


def check_given(state: GroupState, offsets: Offsets, views: Views) -> None:
    """Raise InvalidCut where an offset that somebody states lies behind all that is there to be read of its segment: to
    accept it would skip what comes next. Of streams and segments that are not the group's nothing is said."""
    for each, offset in offsets.items():
        view = views.get(each.stream)
        if view is not None and each.segment in view.segments and offset > state.stop(view, each.segment):
            stop = state.stop(view, each.segment)
            raise InvalidCut(
                f"offset {offset} lies behind the last event to be read of segment {each}, which is at {stop}"
            )


def beat(state: GroupState, reader: str) -> GroupState:
    """A sign of life."""
    member = state.members[reader]
    return replace(state, members={**state.members, reader: replace(member, beat=member.beat + 1)})


def leave(state: GroupState, readers: Collection[str]) -> GroupState:
    """Readers are gone: nobody reads their segments any more. Unknown names are ignored."""
    if not any(reader in state.members for reader in readers):
        return state
    checkpoint = state.checkpoint
    if checkpoint is not None:
        checkpoint = replace(checkpoint, waiting=checkpoint.waiting.difference(readers))
    return replace(
        state,
        members={name: member for name, member in state.members.items() if name not in readers},
        owners={segment: owner for segment, owner in state.owners.items() if owner not in readers},
        checkpoint=checkpoint,
    )


def rebalance(state: GroupState, reader: str, views: Views, keep: Collection[StreamSegment] = ()) -> GroupState:
    """What one reader gives up and takes now; see `core.assignment`. What it keeps stays its own."""
    live = state.live(views)
    owners = {segment: owner for segment, owner in state.owners.items() if segment in live or segment in keep}
    give_up, take = moves(reader, state.members, {each: owners.get(each) for each in live}, state.lag(views), keep=keep)
    owners = {segment: owner for segment, owner in owners.items() if segment not in give_up}
    owners |= {segment: reader for segment in take if _may_take(state, reader, segment)}
    if owners == state.owners:
        return state
    state = replace(state, owners=owners)
    checkpoint = state.checkpoint
    if checkpoint is not None and reader not in checkpoint.waiting:
        missing = {each: offset for each, offset in state.owned(reader).items() if each not in checkpoint.offsets}
        state = replace(state, checkpoint=replace(checkpoint, offsets={**checkpoint.offsets, **missing}))
    return state


def _may_take(state: GroupState, reader: str, segment: StreamSegment) -> bool:
    checkpoint = state.checkpoint
    return checkpoint is None or segment not in checkpoint.offsets or reader not in checkpoint.waiting


# what the streams did


def advance(state: GroupState, views: Views) -> GroupState:
    """Let the successors of what is read to its end enter, and complete a checkpoint that waits for nobody."""
    checkpoint = state.checkpoint
    if checkpoint is not None:
        if checkpoint.waiting:
            return state
        done = replace(checkpoint, offsets={**state.positions, **checkpoint.offsets})
        state = replace(state, checkpoint=None, checkpoints=_kept((*state.checkpoints, done)))
    state = _settled(state, views)
    # Never taken back here: a view that is older than the state must not let the end come a second time.
    return state if state.ended or state.live(views) else replace(state, ended=True)


def _kept(checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """The last ones of each kind. A silent one is let go of by who began it, unless that was killed."""
    kept: list[Checkpoint] = []
    for each in reversed(checkpoints):
        if sum(one.silent == each.silent for one in kept) < limits.CHECKPOINTS_KEPT:
            kept.append(each)
    return tuple(reversed(kept))


def _settled(state: GroupState, views: Views) -> GroupState:
    positions: dict[StreamSegment, int] = {}
    for stream in state.streams:
        here = state.cut(stream).as_dict()
        if cuts.below_head(views[stream], here):
            positions |= {StreamSegment(stream, segment): offset for segment, offset in here.items()}
        else:
            settled = cuts.settle(views[stream], here)
            positions |= {StreamSegment(stream, segment): offset for segment, offset in settled.items()}
    if positions == state.positions:
        return state
    owners = {segment: owner for segment, owner in state.owners.items() if segment in positions}
    return replace(state, positions=positions, owners=owners)


def skip_truncated(state: GroupState, views: Views) -> GroupState:
    """Where positions lie before a stream's head, move them there. What was to be read in between is lost."""
    positions = dict(state.positions)
    for stream in state.streams:
        here, view = state.cut(stream), views[stream]
        if any(segment.epoch > view.info.epoch for segment, _ in here):
            continue  # the view is older than the state: who has a newer one will see
        if cuts.below_head(view, here.as_dict()):
            positions = {each: offset for each, offset in positions.items() if each.stream != stream}
            positions |= offsets_of(cuts.raised(view, here))
    if positions == state.positions:
        return state
    owners = {segment: owner for segment, owner in state.owners.items() if segment in positions}
    return replace(state, positions=positions, owners=owners, checkpoint=None)


# checkpoints


def begin_checkpoint(state: GroupState, group: str, name: str, now: Micros, *, silent: bool = False) -> GroupState:
    """All present readers are to come to it. Raises AlreadyExists where one of the name is kept; asked for again while it
    is gathered, it goes on. One that is gathered under another name is given up for it, but not for a silent one."""
    if state.checkpoint is not None and (silent or state.checkpoint.name == name):
        return state
    if any(each.name == name for each in state.checkpoints):
        raise AlreadyExists(f"group '{group}' has a checkpoint '{name}' already")
    return replace(state, checkpoint=Checkpoint(name, now, {}, frozenset(state.members), silent))


def cancel_checkpoint(state: GroupState) -> GroupState:
    """Give up the one that is gathered."""
    return state if state.checkpoint is None else replace(state, checkpoint=None)


def forget_checkpoint(state: GroupState, name: str) -> GroupState:
    """Give it up, or let go of it where it is complete. What is not there is let be."""
    if state.checkpoint is not None and state.checkpoint.name == name:
        return cancel_checkpoint(state)
    return replace(state, checkpoints=tuple(each for each in state.checkpoints if each.name != name))


def is_due(state: GroupState, now: Micros) -> bool:
    """True if a checkpoint should begin by itself."""
    if not state.checkpoint_us or state.checkpoint is not None:
        return False
    last = (
        state.checkpoints[-1].at
        if state.checkpoints
        else min((m.joined_at for m in state.members.values()), default=now)
    )
    return now - last >= state.checkpoint_us


def come_to_checkpoint(state: GroupState, reader: str) -> GroupState:
    """A reader adds the accepted positions of its segments. One that is not waited for changes nothing."""
    checkpoint = state.checkpoint
    if checkpoint is None or reader not in checkpoint.waiting:
        return state
    offsets = {**checkpoint.offsets, **state.owned(reader)}
    return replace(state, checkpoint=replace(checkpoint, offsets=offsets, waiting=checkpoint.waiting - {reader}))


def reset(state: GroupState, positions: Offsets) -> GroupState:
    """Go on from other positions. All readers are sent away: what they have read since does not count."""
    return replace(
        state, positions=dict(positions), owners={}, members={}, checkpoint=None, resets=state.resets + 1, ended=False
    )
