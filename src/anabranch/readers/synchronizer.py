"""State that many processes share: a value on a revisioned stream, changed one update after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from anabranch import limits
from anabranch.errors import AnabranchError, AppendUncertain, ConditionFailed, InvalidArgument, StoreBusy
from anabranch.model.append import Part
from anabranch.readers.revisioned import Entry, RevisionedStream, Told
from anabranch.runtime.ports import Runtime

T = TypeVar("T")


class Codec(Protocol[T]):
    """How values of one type become bytes and come back. What `encode` gives, `decode` must take for ever."""

    def encode(self, value: T) -> bytes:
        """The value as bytes. Equal values should give equal bytes."""
        ...

    def decode(self, data: bytes) -> T:
        """The value again."""
        ...


class JsonCodec:
    """Values as JSON: None, truth values, numbers, text, lists, and dicts with text as keys."""

    def encode(self, value: Any) -> bytes:
        """See `Codec.encode`. Raises InvalidArgument for what JSON can't hold."""
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
        except (TypeError, ValueError) as exc:
            raise InvalidArgument(f"the state can't be written as JSON: {exc}; give a codec= of your own") from exc

    def decode(self, data: bytes) -> Any:
        """See `Codec.decode`."""
        return json.loads(data)


class StateSynchronizer(Generic[T]):
    """A shared value of any type that a codec knows. Each entry of its stream is the whole value, so that whoever comes
    late reads one entry, however many updates there were.

    A value must not be changed in place: `update` is given one and returns another. For one thread at a time; any number
    of processes may hold one. `initial` is the value where the stream is still empty: the first who opens it writes it
    down, for all. `told` is what goes into the change outbox with an update, given the value before and behind it.
    With `entries_kept` None old values stay, until something else truncates the stream.
    """

    def __init__(
        self,
        stream: RevisionedStream,
        runtime: Runtime,
        codec: Codec[T],
        initial: T | None = None,
        *,
        told: Callable[[T, T], Told] = lambda before, after: (),
        entries_kept: int | None = limits.SYNCHRONIZER_ENTRIES_KEPT,
    ) -> None:
        self._stream = stream
        self._told = told
        self._entries_kept = entries_kept
        self._runtime = runtime
        self._codec = codec
        self._revision = 0
        self._contended = False  # somebody else was first the last time
        self._state: T
        if not self._load():
            self._begin(initial)

    @property
    def state(self) -> T:
        """The value as it was last seen here. `fetch` looks whether it changed."""
        return self._state

    @property
    def revision(self) -> int:
        """The revision of `state`: how many updates led to it."""
        return self._revision

    @property
    def stream(self) -> RevisionedStream:
        """What it lies on."""
        return self._stream

    def fetch(self) -> T:
        """The value as it is now. Reads nothing where it did not change. Raises StreamNotFound."""
        if self._stream.latest() != self._revision:
            self._load()
        return self._state

    def update(self, change: Callable[[T], T]) -> T:
        """Replace the value by `change` of it, durably, and return the new one.

        `change` is called again, with the newer value, each time somebody else was first; so it must do nothing but
        compute. Where it returns an equal value, nothing is written. What it raises is passed on, and nothing is
        written. Among several who are at it, it is called within a transaction, so it should be quick. Raises StoreBusy, TooLarge,
        AppendUncertain.
        """
        if not self._contended:
            try:
                return self._update(change, self._append, once=True)
            except ConditionFailed:
                self._contended = True
        return self._update_in_turn(change)

    def update_within(self, change: Callable[[T], T], unit: Callable[[Part], None]) -> T:
        """The same, as a part of somebody else's atomic unit: `unit` appends the part and whatever else belongs to it, all
        or nothing. It is called again where it raises ConditionFailed."""

        def append(value: bytes, wanted: T) -> int:
            unit(self._stream.part(value, self._revision))
            return self._revision + 1

        return self._update(change, append, always=True)

    def _append(self, value: bytes, wanted: T) -> int:
        told = self._told(self._state, wanted)
        if not told:
            return self._stream.append(value, expected=self._revision)
        try:
            return self._stream.append_telling(value, told, expected=self._revision)
        except AppendUncertain:
            # Whether it landed shows in the value, and if it lands later still, the condition refuses one of the two.
            raise ConditionFailed(self._revision, self._stream.latest()) from None

    def _update_in_turn(self, change: Callable[[T], T]) -> T:
        """The same where others are at it too: whoever is refused once has the value changed in its turn, within the
        transaction, instead of racing for it; and so it goes on until it finds that nobody was there meanwhile."""
        found: list[T] = []

        def decide(entry: Entry | None) -> tuple[bytes, Told] | None:
            assert entry is not None, "whoever was refused was late"
            self._contended = entry.revision != self._revision
            before = self._codec.decode(entry.value) if self._contended else self._state
            wanted = change(before)
            found[:] = [wanted]
            return None if wanted == before else (self._codec.encode(wanted), self._told(before, wanted))

        revision, just_now = self._stream.append_in_turn(decide)
        if just_now:
            self._adopt(revision, found[0])
        else:
            self._load()
        self._thin()
        return self._state

    def _update(
        self, change: Callable[[T], T], append: Callable[[bytes, T], int], *, always: bool = False, once: bool = False
    ) -> T:
        deadline = self._deadline()
        late = 0
        while True:
            wanted = change(self._state)
            if wanted == self._state and not always:
                # What it was compared with may be old: only the present value may be left as it is.
                before = self._revision
                self.fetch()
                if self._revision == before:
                    return self._state
                continue
            try:
                self._adopt(append(self._codec.encode(wanted), wanted), wanted)
            except ConditionFailed:
                if once:
                    raise
                late += 1
                self._give_up_after(deadline)
                self._pause(late)
                self._load()
                continue
            self._thin()
            return self._state

    def _thin(self) -> None:
        if self._entries_kept is not None and self._revision % self._entries_kept == 0:
            # The update is durable: to raise now would have it made again. What is left is let go of the next time.
            with suppress(AnabranchError):
                self.compact()

    def compact(self) -> None:
        """Let go of all values but the present one. Done by itself, every `entries_kept` updates."""
        self.fetch()
        self._stream.truncate(self._revision - 1)

    def _load(self) -> bool:
        entry = self._stream.last()
        if entry is None:
            return False
        self._adopt(entry.revision, self._codec.decode(entry.value))
        return True

    def _adopt(self, revision: int, state: T) -> None:
        self._revision, self._state = revision, state

    def _begin(self, initial: Any) -> None:
        try:
            self._adopt(self._stream.append(self._codec.encode(initial), expected=0), initial)
        except ConditionFailed:
            self._load()  # another was first, and its value is the one

    def _deadline(self) -> float:
        return self._runtime.clock.monotonic() + self._runtime.settings.catalog_lock_s

    def _give_up_after(self, deadline: float) -> None:
        if self._runtime.clock.monotonic() > deadline:
            raise StoreBusy(f"others change '{self._stream.name}' so often that no update gets through") from None

    def _pause(self, late: int) -> None:
        """Twice as long each time, and by chance, so that those who met once do not meet again."""
        most = min(limits.SYNCHRONIZER_PAUSE_US_MIN << min(late, 16), limits.SYNCHRONIZER_PAUSE_US_MAX)
        self._runtime.tasks.sleep(most * self._runtime.ids.bits(16) / (1 << 16) / 1e6)
