"""Reader groups of a store that a broker serves; see `anabranch.groups.group`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.core.group import Checkpoint
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import GroupNotFound
from anabranch.groups.checkpoints import End
from anabranch.groups.load import Distribution, Unread
from anabranch.groups.ports import StoredPositions
from anabranch.groups.progress import DeliveryMode
from anabranch.groups.reader_tools import ReaderTools
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.position import Position
from anabranch.model.seconds import wait_seconds
from anabranch.model.time_kind import TimeKind
from anabranch.notifications.group_events import GroupListening
from anabranch.notifications.subscription import Handler
from anabranch.reading.bounds import Place
from anabranch.remote.group_reader import RemoteGroupReader
from anabranch.remote.owner import Owner
from anabranch.remote.subscription import RemoteSubscription, listen
from anabranch.remote.verbs import Caller, RemoteNoun
from anabranch.streams.arguments import stream_list
from anabranch.wire.verbs import VERBS

T = TypeVar("T")

_UNCHANGED: Final = "unchanged"


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
        ident = self._caller.call(
            VERBS["group.open"],
            {
                "group": str(full),
                "streams": wanted,
                "start": start,
                "end": end,
                "by": by,
                "lease_s": lease_s,
                "refresh_s": refresh_s,
                "checkpoint_s": checkpoint_s,
            },
        )
        return RemoteReaderGroup(str(full), StreamId(ident), self._caller, cast(Owner, self._own))


class RemoteReaderGroup(GroupListening[RemoteSubscription], ReaderTools, Displayed):
    """Like `ReaderGroup`, over a connection. Thread-safe."""

    def __init__(self, name: str, ident: StreamId, caller: Caller, owner: Owner) -> None:
        self.name = name
        self.id = ident
        self._caller = caller
        self._owner = owner
        self._runtime = owner.runtime

    def _facts(self) -> Mapping[str, object]:
        return {"name": self.name}

    def _call(self, verb: str, **arguments: Any) -> Any:
        given = {"ident": self.id, **arguments}
        return self._by_name(lambda: self._caller.call(VERBS[f"group.{verb}"], {"group": self.name, **given}))

    def _by_name(self, call: Callable[[], T]) -> T:
        """The result of a call that has the group's name, made again where its scope was renamed: the id says whether
        it is the same group."""
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
                self,
                ident=self.id,
                delivery=delivery,
                positions=positions,
                batch_rows=batch_rows,
                on_close=self._forget,
            )
        )
        self._owner.keep(_Abandoned(opened))
        return opened

    def _forget(self, reader: RemoteGroupReader) -> None:
        self._owner.forget(_Abandoned(reader))

    def reader_offline(self, name: str, position: Position | str | None = None) -> None:
        """See `ReaderGroup.reader_offline`."""
        self._call("reader_offline", name=name, position=position)

    @property
    def readers(self) -> list[str]:
        """See `ReaderGroup.readers`."""
        found: list[str] = self._call("readers")
        return found

    @property
    def streams(self) -> list[str]:
        """See `ReaderGroup.streams`."""
        found: list[str] = self._call("streams")
        return found

    def distribution(self) -> Distribution:
        """See `ReaderGroup.distribution`."""
        found: Distribution = self._call("distribution")
        return found

    # progress and lag

    def cut(self) -> dict[str, StreamCut]:
        """See `ReaderGroup.cut`."""
        found: dict[str, StreamCut] = self._call("cut")
        return found

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """See `ReaderGroup.time_window`."""
        found: TimeWindow = self._call("time_window", stream=stream)
        return found

    def unread(self) -> Unread:
        """See `ReaderGroup.unread`."""
        found: Unread = self._call("unread")
        return found

    def delete(self) -> None:
        """See `ReaderGroup.delete`."""
        self._call("delete")

    # checkpoints

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """See `ReaderGroup.checkpoints`."""
        found: list[Checkpoint] = self._call("checkpoints")
        return found

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
        """The result of a call that the broker answers after a while with TimeoutError, so that it is asked again."""
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

    def cancel_checkpoint(self, name: str | None = None) -> None:
        """See `ReaderGroup.cancel_checkpoint`."""
        self._call("cancel_checkpoint", name=name)

    def rewind(self) -> None:
        """See `ReaderGroup.rewind`."""
        self._call("rewind")

    def reset(
        self,
        to: str | Checkpoint | Place | Mapping[str, Place] | None = None,
        *,
        streams: Sequence[str] | str | None = None,
        end: End | Literal["unchanged"] = _UNCHANGED,
        by: TimeKind = "append",
    ) -> None:
        """See `ReaderGroup.reset`."""
        self._call("reset", to=to, streams=streams, end=end, by=by)

    def _subscribe(self, kind: str, handle: Handler, name: str | None) -> RemoteSubscription:
        return listen(self._owner, handle, {"group": self.name, "kind": kind, "name": name})


class _Abandoned:
    """Closes a group reader with its store: its last batch is not accepted, since it was not reported as processed.
    Equal for equal readers."""

    def __init__(self, reader: RemoteGroupReader) -> None:
        self._reader = reader

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Abandoned) and other._reader is self._reader

    def __hash__(self) -> int:
        return hash(self._reader)

    def close(self) -> None:
        """See `GroupReader.abandon`."""
        self._reader.abandon()
