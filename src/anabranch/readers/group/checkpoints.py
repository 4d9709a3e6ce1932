"""The checkpoints of a reader group, and going back to one, or anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.core import cuts
from anabranch.core import group as changes
from anabranch.core.group import Checkpoint, GroupState
from anabranch.errors import InvalidArgument, NotFound
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView
from anabranch.readers.place import Place, TimeKind, to_cut
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


class GroupCheckpoints:
    """The part of `ReaderGroup` that gathers where its readers are, and lets them go on from elsewhere."""

    name: str
    _catalog: Catalog
    _logs: LogReader
    _tail: Tail
    _runtime: Runtime

    def _state(self) -> GroupState:
        raise NotImplementedError

    def _update(self, change: Callable[[GroupState], GroupState]) -> GroupState:
        raise NotImplementedError

    def _views(self, reading: Reading, state: GroupState) -> dict[StreamId, StreamView]:
        raise NotImplementedError

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The complete ones that are kept, the oldest first: the last `limits.CHECKPOINTS_KEPT`."""
        return [each for each in self._state().checkpoints if not each.silent]

    def checkpoint(self, name: str, *, timeout_s: float = 60.0) -> Checkpoint:
        """Have every reader come to a checkpoint, and return it when all have: a cut of every stream, such that what each
        reader had handed out when it came there lies before it. Readers do not wait for each other.

        A reader comes to it when it asks for more. Raises TimeoutError where one does not within `timeout_s` seconds; the
        checkpoint is still gathered then, and will be among `checkpoints`, unless it is cancelled. Raises AlreadyExists where
        one of this name is kept, NotFound where it was given up for another, cancelled, or by a reset, InvalidArgument for what
        is no name.
        """
        if not isinstance(name, str) or not 0 < len(name) <= limits.NAME_CHARS_MAX:
            raise InvalidArgument(f"a checkpoint's name is text of 1 to {limits.NAME_CHARS_MAX} characters")
        return self._gather(name, timeout_s, silent=False)

    def generate_cut(self, *, timeout_s: float = 60.0) -> dict[str, StreamCut]:
        """A cut of each stream, by name, behind all that the readers are done with when they are asked: as precise as a
        checkpoint, where `cut` is behind what was accepted some moments ago. It is gathered as one, but `on_checkpoint` does not
        tell of it, it is not kept, and it waits for one that is under way. Raises TimeoutError where a reader does not ask for
        more within `timeout_s` seconds.
        """
        name = f"cut-{token(self._runtime.ids)}"
        try:
            done = self._gather(name, timeout_s, silent=True)
        finally:
            state = self._update(lambda state: changes.forget_checkpoint(state, name))
        with self._catalog.reading() as reading:
            return {str(view.info.name): done.cut(stream) for stream, view in self._views(reading, state).items()}

    def cancel_checkpoint(self) -> None:
        """Give up the checkpoint that is gathered, as where a reader never comes to it. Where there is none, that is harmless."""
        self._update(changes.cancel_checkpoint)
        self._tail.notify()

    def _gather(self, name: str, timeout_s: float, *, silent: bool) -> Checkpoint:
        deadline = self._runtime.clock.monotonic() + timeout_s

        def begin() -> GroupState:
            now = Micros(self._runtime.clock.now())
            return self._update(lambda state: changes.begin_checkpoint(state, self.name, name, now, silent=silent))

        state = begin()
        while True:
            seen = self._tail.seen()
            if (done := _named(state, name)) is not None:
                return done
            pending = state.checkpoint
            if pending is not None and pending.name == name:
                if not pending.waiting:
                    state = self._advance()
                    continue
                waiting = ", ".join(sorted(pending.waiting))
            elif not silent:
                raise NotFound(
                    f"checkpoint '{name}' of group '{self.name}' was given up: another was begun, it was cancelled, or a reset"
                )
            elif pending is None:
                state = begin()
                continue
            else:
                waiting = f"checkpoint '{pending.name}'"
            left = deadline - self._runtime.clock.monotonic()
            if left <= 0:
                what = "a cut" if silent else f"checkpoint '{name}'"
                raise TimeoutError(f"{what} of group '{self.name}' waits for {waiting}")
            self._tail.wait(seen, left)
            state = self._state()

    def _advance(self) -> GroupState:
        state = self._state()
        with self._catalog.reading() as reading:
            views = self._views(reading, state)
        return self._update(lambda state: changes.advance(state, views))

    def rewind(self) -> None:
        """Begin anew where the group began; see `reset`."""
        self._update(lambda state: changes.reset(state, state.starts))

    def reset(self, to: str | Checkpoint | Place | Mapping[str, Place], *, by: TimeKind = "append") -> None:
        """Go on from somewhere else: a checkpoint or its name, a place in every stream (HEAD, TAIL, a time), or a place
        for each stream by name, such as what `cut` gave. All readers get ReaderNotInGroup and are to be opened again.

        Raises NotFound for a checkpoint that is not kept, InvalidCut, Truncated.
        """
        state = self._state()
        offsets: Mapping[StreamSegment, int]
        if isinstance(to, Checkpoint):
            offsets = to.offsets
        elif isinstance(to, str) and (known := _named(state, to)) is not None:
            offsets = known.offsets
        else:
            offsets = self._offsets(state, to, by)
        self._update(lambda state: changes.reset(state, offsets))

    def _offsets(self, state: GroupState, to: Place | Mapping[str, Place], by: TimeKind) -> dict[StreamSegment, int]:
        with self._catalog.reading() as reading:
            views = self._views(reading, state)
        try:
            return offsets_at(self._catalog, self._logs, list(views.values()), to, by=by)
        except InvalidArgument as exc:
            if isinstance(to, str):
                kept = ", ".join(each.name for each in state.checkpoints) or "none"
                raise NotFound(f"'{to}' is no place and no checkpoint of group '{self.name}' (kept: {kept})") from exc
            raise


def offsets_at(
    catalog: Catalog,
    logs: LogReader,
    views: Sequence[StreamView],
    place: Place | Mapping[str, Place],
    *,
    by: TimeKind = "append",
) -> dict[StreamSegment, int]:
    """A place in every stream, or one for each by name, as positions of a group. Raises InvalidArgument where the mapping
    names other streams, and what `to_cut` raises."""
    names = {str(view.info.name) for view in views}
    if isinstance(place, Mapping) and place.keys() != names:
        raise InvalidArgument(
            f"a place for each of {', '.join(sorted(names))} is needed, not for {', '.join(sorted(place))}"
        )
    found: dict[StreamSegment, int] = {}
    for view in views:
        where = place[str(view.info.name)] if isinstance(place, Mapping) else place
        cut = to_cut(catalog, logs, view, where, by=by)
        # In its furthest form, in which segments that are read to their ends have left.
        settled = cuts.settle(view, cut.as_dict())
        found |= {StreamSegment(view.info.id, segment): offset for segment, offset in settled.items()}
    return found


def _named(state: GroupState, name: str) -> Checkpoint | None:
    return next((each for each in state.checkpoints if each.name == name), None)
