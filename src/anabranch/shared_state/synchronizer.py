"""A value that many processes share, kept on a revisioned stream and changed by conditional appends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.core.json_text import parse_json
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    ConditionFailed,
    CorruptStore,
    InvalidArgument,
    StoreBusy,
)
from anabranch.model.append import Part
from anabranch.model.ids import StreamId
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy
from anabranch.shared_state.revisioned_stream import ChangeRows, RevisionedEntry

T = TypeVar("T")

# Fully random pauses, so that processes that collided don't collide again.
_LOST_RACE = RetryPolicy(
    pause_s_min=limits.SYNCHRONIZER_PAUSE_US_MIN / 1e6, pause_s_max=limits.SYNCHRONIZER_PAUSE_US_MAX / 1e6, jitter=1
)


class EntryStream(Protocol):
    """Where a synchronizer keeps its values: a `RevisionedStream`, or one that a broker serves."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> StreamId: ...

    def latest(self) -> int: ...

    def oldest(self) -> int: ...

    def last(self) -> RevisionedEntry | None: ...

    def read(self, start: int = 0) -> Iterator[RevisionedEntry]: ...

    def append(self, value: bytes, *, expected: int | None = None) -> int: ...

    def append_with_changes(self, value: bytes, changes: ChangeRows, *, expected: int) -> int: ...

    def append_under_lock(
        self, decide: Callable[[RevisionedEntry | None], tuple[bytes, ChangeRows] | None]
    ) -> tuple[int, bool]: ...

    def part(self, value: bytes, expected: int) -> Part: ...

    def truncate(self, revision: int) -> None: ...


class StateCodec(Protocol[T]):
    """Converts values of one type to bytes and back. `decode` must accept all that `encode` returned in any release."""

    def encode(self, value: T) -> bytes:
        """The value as bytes. Equal values should give equal bytes."""

    def decode(self, data: bytes) -> T:
        """The value that was encoded."""


class JsonCodec:
    """Values as JSON: None, booleans, numbers, text, lists, and dicts with text as keys."""

    def encode(self, value: Any) -> bytes:
        """See `StateCodec.encode`. Raises InvalidArgument for what JSON can't represent."""
        try:
            data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
            _refuse_other_keys(value)
        except (TypeError, ValueError, RecursionError) as exc:
            raise InvalidArgument(f"can't encode the state as JSON: {exc}; pass codec= for other types") from exc
        return data

    def decode(self, data: bytes) -> Any:
        """See `StateCodec.decode`. Raises CorruptStore."""
        try:
            return parse_json(data)
        except ValueError as exc:
            raise CorruptStore(f"expected a shared value as JSON: {exc}") from exc


def _refuse_other_keys(value: Any) -> None:
    """Raise TypeError for a dict with keys that are not text: JSON makes them text, which only other
    processes would see."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected text as the keys of a dict, got {key!r:.100}")
            _refuse_other_keys(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _refuse_other_keys(each)


class StateSynchronizer(Displayed, Generic[T]):
    """A shared value of any type that the codec supports. Each entry of its stream is the whole value, so a process
    that joins late reads one entry, however many updates there were.

    A value must not be changed in place: the function given to `update` gets the old value and returns a new one. A
    synchronizer is for one thread at a time; any number of processes may have one for the same stream. If the stream is
    empty, the first process that opens it writes `initial`, and the others read it. `changes_of` computes the rows that
    an update adds to the change outbox, from the values before and after the update. With `entries_kept` None, old
    values stay until something else truncates the stream.
    """

    def __init__(
        self,
        stream: EntryStream,
        runtime: Runtime,
        codec: StateCodec[T],
        initial: T | None = None,
        *,
        changes_of: Callable[[T, T], ChangeRows] = lambda previous, after: (),
        entries_kept: int | None = limits.SYNCHRONIZER_ENTRIES_KEPT,
    ) -> None:
        self._stream = stream
        self._changes_of = changes_of
        self._entries_kept = entries_kept
        self._runtime = runtime
        self._codec = codec
        self._revision = 0
        self._contended = False  # the last update lost a race against another process
        self._state: T
        if not self._load():
            self._write_initial(initial)

    def _facts(self) -> Mapping[str, object]:
        return {"stream": self._stream.name, "revision": self._revision}

    @property
    def state(self) -> T:
        """The value as last seen by this object. `fetch` loads the current one."""
        return self._state

    @property
    def revision(self) -> int:
        """The revision of `state`: how many updates led to it."""
        return self._revision

    @property
    def stream(self) -> EntryStream:
        """The revisioned stream that holds the value."""
        return self._stream

    def fetch(self) -> T:
        """The current value. Reads no entry if it did not change. Raises StreamNotFound."""
        if self._stream.latest() != self._revision:
            self._load()
        return self._state

    def update(self, change: Callable[[T], T]) -> T:
        """Replaces the value by `change(value)`, durably, and returns the new one.

        `change` is called again, with the newer value, each time another process was first, so it must only compute.
        If it returns an equal value, nothing is written. If it raises, the error is passed on and nothing is written.
        Under contention it is called within a transaction, so it should be quick. Raises StoreBusy, TooLarge,
        AppendUncertain.
        """
        if not self._contended:
            try:
                return self._update(change, self._append, single_attempt=True)
            except ConditionFailed:
                self._contended = True
        return self._update_under_lock(change)

    def update_within(self, change: Callable[[T], T], unit: Callable[[Part], None]) -> T:
        """Like `update`, as a part of the caller's atomic unit: `unit` appends the part together with the
        caller's other parts, all or nothing. If `unit` raises ConditionFailed, it is called again with a new part."""

        def append(value: bytes, new_state: T) -> int:
            unit(self._stream.part(value, self._revision))
            return self._revision + 1

        return self._update(change, append, always_write=True)

    def _append(self, value: bytes, new_state: T) -> int:
        changes = self._changes_of(self._state, new_state)
        if not changes:
            return self._stream.append(value, expected=self._revision)
        try:
            return self._stream.append_with_changes(value, changes, expected=self._revision)
        except AppendUncertain:
            # The retry reads the value, which shows whether this append landed. If this append lands later still, the
            # expected revision refuses it or the retry.
            raise ConditionFailed(self._revision, self._stream.latest()) from None

    def _update_under_lock(self, change: Callable[[T], T]) -> T:
        """Like `update`, under contention: the value is read and changed in one catalog transaction, under its lock.
        Later updates are made under the lock too, until one finds that no other process changed the value in
        between."""
        computed: list[T] = []

        def decide(entry: RevisionedEntry | None) -> tuple[bytes, ChangeRows] | None:
            assert entry is not None, "a lost race implies an entry"
            self._contended = entry.revision != self._revision
            previous = self._codec.decode(entry.value) if self._contended else self._state
            new_state = change(previous)
            computed[:] = [new_state]
            return (
                None
                if new_state == previous
                else (self._codec.encode(new_state), self._changes_of(previous, new_state))
            )

        revision, is_new = self._stream.append_under_lock(decide)
        if is_new:
            self._set(revision, computed[0])
        else:
            self._load()
        self._compact_if_due()
        return self._state

    def _update(
        self,
        change: Callable[[T], T],
        append: Callable[[bytes, T], int],
        *,
        always_write: bool = False,
        single_attempt: bool = False,
    ) -> T:
        retries = replace(_LOST_RACE, deadline_s=self._runtime.settings.catalog_lock_s).begin(self._runtime)
        while True:
            new_state = change(self._state)
            if new_state == self._state and not always_write:
                # The compared value may be stale: the update is a no-op only if the current value is the same.
                previous = self._revision
                self.fetch()
                if self._revision == previous:
                    return self._state
                continue
            try:
                self._set(append(self._codec.encode(new_state), new_state), new_state)
            except ConditionFailed:
                if single_attempt:
                    raise
                if not retries.again():
                    raise StoreBusy(
                        f"an update of '{self._stream.name}' lost to concurrent updates for"
                        f" {self._runtime.settings.catalog_lock_s:g} s; try again"
                    ) from None
                self._load()
                continue
            self._compact_if_due()
            return self._state

    def _compact_if_due(self) -> None:
        if self._entries_kept is not None and self._revision % self._entries_kept == 0:
            # The update is durable: an error now would make the caller repeat it. Old values are removed the next time.
            with suppress(AnabranchError):
                self.compact()

    def compact(self) -> None:
        """Removes all values but the current one. Called automatically every `entries_kept` updates."""
        self.fetch()
        self._stream.truncate(self._revision - 1)

    def _load(self) -> bool:
        entry = self._stream.last()
        if entry is None:
            return False
        self._set(entry.revision, self._codec.decode(entry.value))
        return True

    def _set(self, revision: int, state: T) -> None:
        self._revision, self._state = revision, state

    def _write_initial(self, initial: Any) -> None:
        try:
            self._set(self._stream.append(self._codec.encode(initial), expected=0), initial)
        except ConditionFailed:
            self._load()  # another process was first, and its value counts
