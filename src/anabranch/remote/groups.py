"""Reader groups of a store that a broker serves; see `anabranch.groups.group`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.core.group import Checkpoint
from anabranch.errors import GroupNotFound
from anabranch.groups.checkpoints import End
from anabranch.groups.group import ReaderGroup
from anabranch.groups.ports import StoredPositions
from anabranch.groups.progress import DeliveryMode
from anabranch.groups.reader_tools import ReaderTools
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.seconds import wait_seconds
from anabranch.model.time_kind import TimeKind
from anabranch.notifications.group_events import GroupListening
from anabranch.notifications.subscription import Handler
from anabranch.reading.bounds import Place
from anabranch.remote.group_reader import RemoteGroupReader
from anabranch.remote.subscription import RemoteSubscription, listen
from anabranch.remote.verbs import Owner, RemoteNoun, same_method, same_property
from anabranch.store.groups import ClosableMember
from anabranch.streams.arguments import stream_list
from anabranch.wire.verbs import VERBS

T = TypeVar("T")


class RemoteGroups(RemoteNoun):
    """Reader groups by name; `open` returns a `RemoteReaderGroup`."""

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
    ) -> RemoteReaderGroup:
        """See `Groups.open`."""
        listed = stream_list(streams)
        wanted = None if listed is None else [str(each) for each in listed]
        full = StreamName.parse(name)
        given = {"group": str(full), "streams": wanted, "start": start, "end": end, "by": by, "lease_s": lease_s}
        given |= {"refresh_s": refresh_s, "checkpoint_s": checkpoint_s}
        ident = self._caller.call(VERBS["group.open"], given)
        return RemoteReaderGroup(str(full), StreamId(ident), self._own)


class RemoteReaderGroup(GroupListening[RemoteSubscription], ReaderTools, Displayed):
    """Like `ReaderGroup`, over a connection. Thread-safe."""

    def __init__(self, name: str, ident: StreamId, owner: Owner) -> None:
        self.name = name
        self.id = ident
        self._owner = owner
        self._caller = owner.caller
        self._runtime = owner.runtime

    cancel_checkpoint = same_method(ReaderGroup, "cancel_checkpoint")
    cut = same_method(ReaderGroup, "cut")
    delete = same_method(ReaderGroup, "delete")
    distribution = same_method(ReaderGroup, "distribution")
    reader_offline = same_method(ReaderGroup, "reader_offline")
    reset = same_method(ReaderGroup, "reset")
    rewind = same_method(ReaderGroup, "rewind")
    time_window = same_method(ReaderGroup, "time_window")
    unread = same_method(ReaderGroup, "unread")
    checkpoints = same_property(ReaderGroup, "checkpoints")
    readers = same_property(ReaderGroup, "readers")
    streams = same_property(ReaderGroup, "streams")

    def _facts(self) -> Mapping[str, object]:
        return {"name": self.name}

    def _call(self, verb: str, **arguments: Any) -> Any:
        given = {"ident": self.id, **arguments}
        return self._by_name(lambda: self._caller.call(VERBS[f"group.{verb}"], {"group": self.name, **given}))

    def _by_name(self, call: Callable[[], T]) -> T:
        """The result of a call by the group's name. If the scope was renamed, the call is repeated with the new name,
        and the id tells whether that is the same group."""
        try:
            return call()
        except GroupNotFound as exc:
            if exc.name is None:
                raise
            self.name = exc.name
        return call()

    # readers

    def reader(
        self,
        name: str,
        *,
        delivery: DeliveryMode = "at_least_once",
        positions: StoredPositions | None = None,
        batch_rows: int = limits.READER_ROWS_MAX,
    ) -> RemoteGroupReader:
        """See `ReaderGroup.reader`."""
        opened = self._by_name(
            lambda: RemoteGroupReader(
                self._owner.connection,
                self._runtime,
                self.name,
                name,
                self.time_window,
                ident=self.id,
                delivery=delivery,
                positions=positions,
                batch_rows=batch_rows,
                on_close=self._forget,
            )
        )
        self._owner.keep(ClosableMember(opened))
        return opened

    def _forget(self, reader: RemoteGroupReader) -> None:
        self._owner.forget(ClosableMember(reader))

    # checkpoints

    def checkpoint(self, name: str, *, timeout_s: float = 60.0) -> Checkpoint:
        """See `ReaderGroup.checkpoint`."""
        found: Checkpoint = self._waited(
            timeout_s, lambda left_s, again: self._call("checkpoint", name=name, timeout_s=left_s, begun=again)
        )
        return found

    def generate_cut(self, *, timeout_s: float = 60.0) -> dict[str, StreamCut]:
        """See `ReaderGroup.generate_cut`."""
        found: dict[str, StreamCut] = self._waited(
            timeout_s, lambda left_s, again: self._call("generate_cut", timeout_s=left_s)
        )
        return found

    def _waited(self, timeout_s: float, call: Callable[[float, bool], Any]) -> Any:
        """The result of a call that waits: the broker ends each wait early with TimeoutError, and the call is
        repeated."""
        clock, again = self._runtime.clock, False
        deadline = clock.monotonic() + wait_seconds("timeout_s", timeout_s)
        while True:
            left_s = min(max(0.0, deadline - clock.monotonic()), limits.REMOTE_WAIT_S)
            try:
                return call(left_s, again)
            except TimeoutError:
                if clock.monotonic() >= deadline:
                    raise
            again = True

    def _subscribe(self, kind: str, handle: Handler, name: str | None) -> RemoteSubscription:
        return listen(self._owner, handle, {"group": self.name, "kind": kind, "name": name})
