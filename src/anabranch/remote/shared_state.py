"""Shared state of a store that a broker serves; see `anabranch.shared_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar, cast

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import ConditionFailed, InvalidArgument, NotRemote, StoreBusy, WriterUnknown
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.remote.verbs import Caller, RemoteNoun, same_method
from anabranch.runtime.ids import token
from anabranch.runtime.retry import RetryPolicy
from anabranch.shared_state.revisioned_stream import ChangeRows, RevisionedEntry, RevisionedStream
from anabranch.shared_state.synchronizer import JsonCodec, StateCodec, StateSynchronizer
from anabranch.store.shared_state import STATE_PREFIX
from anabranch.wire.verbs import VERBS

T = TypeVar("T")

_LOST_RACE: Final = RetryPolicy(
    pause_s_min=limits.SYNCHRONIZER_PAUSE_US_MIN / 1e6, pause_s_max=limits.SYNCHRONIZER_PAUSE_US_MAX / 1e6, jitter=1
)


class RemoteRevisionedStream(Displayed):
    """Like `RevisionedStream`, over a connection; for one thread at a time. Its appends are numbered. So an append
    whose answer was lost is sent again, and takes effect once."""

    def __init__(self, caller: Caller, name: str, ident: StreamId) -> None:
        self._caller = caller
        self.name = name
        self.id = ident
        self._restart_numbers()

    def _restart_numbers(self) -> None:
        self._writer = token(self._caller.runtime.ids)
        self._number = 0

    def _facts(self) -> Mapping[str, object]:
        return {"stream": self.name}

    def _call(self, verb: str, **arguments: Any) -> Any:
        return self._caller.call(VERBS[f"revisioned.{verb}"], {"stream": self.id, **arguments})

    latest = same_method(RevisionedStream, "latest")
    oldest = same_method(RevisionedStream, "oldest")
    truncate = same_method(RevisionedStream, "truncate")

    def last(self) -> RevisionedEntry | None:
        """See `RevisionedStream.last`."""
        found = self._call("last")
        return None if found is None else RevisionedEntry(*found)

    def read(self, start: int = 0) -> Iterator[RevisionedEntry]:
        """See `RevisionedStream.read`."""
        return self._read(start, self.latest())

    def _read(self, start: int, stop: int) -> Iterator[RevisionedEntry]:
        while start < stop:
            for revision, value in self._call("read", start=start):
                if revision > stop:
                    return
                yield RevisionedEntry(revision, value)
                start = revision

    def append(self, value: bytes, *, expected: int | None = None) -> int:
        """See `RevisionedStream.append`."""
        try:
            return self._append(value, expected)
        except WriterUnknown:
            if self._number == 0:
                raise
            # The log forgot this writer, or an append before was interrupted.
            self._restart_numbers()
            return self._append(value, expected)

    def _append(self, value: bytes, expected: int | None) -> int:
        number, self._number = self._number, self._number + 1
        try:
            return int(self._call("append", value=value, expected=expected, writer=self._writer, number=number))
        except BaseException:
            self._restart_numbers()  # nothing was appended under this number, or it is unknown
            raise

    def append_under_lock(
        self, decide: Callable[[RevisionedEntry | None], tuple[bytes, ChangeRows] | None]
    ) -> tuple[int, bool]:
        """Like `RevisionedStream.append_under_lock`, without a lock: `decide` is called again with the newer entry each
        time another process was first. Raises StoreBusy after `Settings.catalog_lock_s`."""
        runtime = self._caller.runtime
        retries = replace(_LOST_RACE, deadline_s=runtime.settings.catalog_lock_s).begin(runtime)
        while True:
            entry = self.last()
            revision = 0 if entry is None else entry.revision
            decision = decide(entry)
            if decision is None:
                return revision, True
            value, changes = decision
            if changes:
                self._refuse()
            try:
                return self.append(value, expected=revision), True
            except ConditionFailed:
                if not retries.again():
                    raise StoreBusy(f"an update of '{self.name}' lost to concurrent updates; try again") from None

    def append_with_changes(self, value: bytes, changes: ChangeRows, *, expected: int) -> int:
        """Raises NotRemote."""
        self._refuse()

    def part(self, value: bytes, expected: int, *, sequence: object = None) -> NoReturn:
        """Raises NotRemote."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotRemote("an atomic unit with an entry of a revisioned stream needs the store's catalog")


class RemoteSharedState(RemoteNoun):
    """State that processes share, through a broker."""

    def revisioned(self, name: str | StreamName, *, create: bool = True) -> RemoteRevisionedStream:
        """See `SharedState.revisioned`."""
        full = StreamName.parse(name)
        if not full.internal:
            raise InvalidArgument(f"'{full}' can't be a revisioned stream: its name must begin with '_'")
        ident = self._caller.call(VERBS["revisioned.open"], {"name": str(full), "create": create})
        return RemoteRevisionedStream(self._caller, str(full), StreamId(ident))

    def synchronizer(
        self,
        name: str | StreamName,
        *,
        initial: T | None = None,
        codec: StateCodec[T] | None = None,
        create: bool = True,
    ) -> StateSynchronizer[T]:
        """See `SharedState.synchronizer`. Under contention an update is retried instead of waiting for a lock."""
        full = StreamName.parse(name)
        stream = self.revisioned(StreamName(full.scope, f"{STATE_PREFIX}{full.name}"), create=create)
        return StateSynchronizer(stream, self._own.runtime, codec or cast(StateCodec[T], JsonCodec()), initial)
