"""The store of a broker, with the API of the embedded `Store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from anabranch import limits
from anabranch.core.redact import shown_address
from anabranch.errors import NotRemote
from anabranch.model.cut import HEAD
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.rate import Rate
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place
from anabranch.reading.history.cache import RangeCache
from anabranch.reading.reader import Reader
from anabranch.reading.row_source import ReaderOptions
from anabranch.remote.address import BrokerAddress
from anabranch.remote.broker_rows import BrokerRows
from anabranch.remote.byte_streams import RemoteByteStreams
from anabranch.remote.connection import Connection, Credentials
from anabranch.remote.ephemeral import RemoteEphemeral
from anabranch.remote.groups import RemoteGroups
from anabranch.remote.history import RemoteHistory
from anabranch.remote.jobs import RemoteJob
from anabranch.remote.notifications import RemoteStoreNotifications
from anabranch.remote.queries import RemoteQueries
from anabranch.remote.shared_state import RemoteSharedState
from anabranch.remote.steps import Steps
from anabranch.remote.transactions import RemoteTransaction, RemoteTransactions
from anabranch.remote.verbs import Caller, Owner, RemoteNoun, public_methods, remote_method, remote_noun
from anabranch.remote.writer import RemoteWriter
from anabranch.runtime.ports import Runtime
from anabranch.store.facade import Store
from anabranch.store.history import History
from anabranch.wire.values import Handle
from anabranch.wire.verbs import NOUNS, VERBS

_BASES: Final = {
    "ephemeral": RemoteEphemeral,
    "groups": RemoteGroups,
    "notifications": RemoteStoreNotifications,
    "queries": RemoteQueries,
    "shared": RemoteSharedState,
    "transactions": RemoteTransactions,
}
_CLASSES: Final[Mapping[str, Callable[..., Any]]] = {
    noun: remote_noun(noun, _BASES.get(noun, RemoteNoun)) for noun in NOUNS if noun
}


class RemoteStore(Owner):
    """A store that one or several brokers serve. Thread-safe. Close it, or use it as a context manager.

    It has the API of `Store`. What needs the store's catalog and files raises NotRemote. A call that changes something
    carries a request id, so it is done once, however often it is sent; calls wait for `Settings.catalog_lock_s` for a
    broker that answers, then they raise StoreUnavailable."""

    addresses = None

    def __init__(self, address: BrokerAddress, credentials: Credentials, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.url = str(address)
        self.connection = Connection(address, credentials, runtime)
        self.caller = Caller(self.connection, runtime, self._wrapped)
        self._caller, self._own = self.caller, self
        for noun, kind in _CLASSES.items():
            setattr(self, noun, kind(self))
        self._history = RemoteHistory(self, self.url)
        self.bytes = RemoteByteStreams(self, self.streams).open
        self._close_at_exit()

    if TYPE_CHECKING:  # the attributes in `NOUNS`

        def __getattr__(self, name: str) -> Any: ...

    def _facts(self) -> Mapping[str, object]:
        return {"url": shown_address(self.url), "state": "closed" if self._closed else "open"}

    def _wrapped(self, handle: Handle) -> Any:
        if handle.kind == "job":
            return RemoteJob(self.caller, handle.id)
        return self.ephemeral._holds.register(handle)

    @property
    def id(self) -> str:
        """See `Store.id`."""
        found: str = self.caller.call(VERBS["id"], {})
        return found

    def writer(
        self,
        stream: str | StreamName,
        *,
        writer_id: str | None = None,
        producer: str | None = None,
        fence: int | None = None,
        note_time_s: float | None = None,
    ) -> RemoteWriter:
        """See `Store.writer` and `RemoteWriter`."""
        writer = RemoteWriter(
            self.connection,
            self.runtime,
            stream,
            writer_id=writer_id,
            producer=producer,
            fence=fence,
            note_time_s=note_time_s,
            on_close=self.forget,
            end_times=lambda ident, name: self.caller.call(VERBS["watermarks.end"], {"stream": ident, "writer": name}),
        )
        return self.keep(writer)

    def reader(
        self,
        stream: str | StreamName,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        between: tuple[datetime | int | str, datetime | int | str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
        rate: Rate | None = None,
    ) -> Reader:
        """See `Store.reader`."""
        options = ReaderOptions(
            start=start, end=end, follow=follow, columns=columns, between=between, by=by, batch_rows=batch_rows
        )
        reader = Reader(
            BrokerRows(self.connection, self.runtime, stream, options),
            self.runtime,
            rate=rate,
            on_close=self.forget,
            window=lambda position: self.watermarks.window(position.stream, position),
        )
        return self.keep(reader)

    def steps(self) -> Steps:
        """Several calls in one request; see `Steps`. Only for a broker: calls of an embedded store need no request."""
        return Steps(self.caller)

    @property
    def ranges(self) -> RangeCache:
        """The ranges of history that were fetched."""
        return self._history.cache

    @property
    def now(self) -> Micros:
        """The time by this machine's clock."""
        return self.runtime.clock.now()

    def history(self, stream: str | StreamName) -> History:
        """See `Store.history`."""
        self.check_open()
        info = self._history.open(stream)
        return History(self._history, info.id, info.name)

    def transaction(
        self, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S
    ) -> RemoteTransaction:
        """See `Store.transaction` and `RemoteTransaction`."""
        begun: RemoteTransaction = self.transactions.begin(ident, lease_s=lease_s)
        return begun

    def _close_parts(self) -> None:
        self.ephemeral.close()
        self.connection.close()


def _refused(name: str) -> property:
    def refuse(store: RemoteStore) -> NoReturn:
        raise NotRemote(
            f"this needs the store's {name}, so it can't be done through a broker: use the store's own address"
        )

    return property(refuse)


for _name in ("blobs", "catalog", "changes", "companions", "internals", "job_store"):
    setattr(RemoteStore, _name, _refused(_name))
for _name in public_methods(Store):
    if not hasattr(RemoteStore, _name):
        setattr(RemoteStore, _name, remote_method(_name))
