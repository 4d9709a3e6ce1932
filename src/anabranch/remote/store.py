"""The store of a broker, with the API of the embedded `Store`."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from anabranch import limits
from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.core.redact import shown_address
from anabranch.errors import AnabranchError, Closed, NotRemote
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
from anabranch.remote.ephemeral import RemoteEphemeral, RemoteHolds
from anabranch.remote.groups import RemoteGroups
from anabranch.remote.history import RemoteHistory
from anabranch.remote.jobs import RemoteJob
from anabranch.remote.notifications import RemoteStoreNotifications
from anabranch.remote.queries import RemoteQueries
from anabranch.remote.shared_state import RemoteSharedState
from anabranch.remote.steps import Steps
from anabranch.remote.transactions import RemoteTransaction, RemoteTransactions
from anabranch.remote.verbs import Caller, RemoteNoun, public_methods, remote_method, remote_noun
from anabranch.remote.writer import RemoteWriter
from anabranch.runtime.ports import Runtime
from anabranch.store.facade import Closing, Store
from anabranch.store.history import History
from anabranch.wire.values import Handle
from anabranch.wire.verbs import NOUNS, VERBS

H = TypeVar("H", bound=Closing)

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


class RemoteStore(Displayed, Closeable):
    """A store that one or several brokers serve. Thread-safe. Close it, or use it as a context manager.

    It has the API of `Store`. What needs the store's catalog and files raises NotRemote. A call that changes something
    carries a request id, so it is done once, however often it is sent; calls wait for `Settings.catalog_lock_s` for a
    broker that answers, then they raise StoreUnavailable."""

    addresses = None

    def __init__(self, address: BrokerAddress, credentials: Credentials, runtime: Runtime) -> None:
        self.url = str(address)
        self.runtime = runtime
        self.connection = Connection(address, credentials, runtime)
        self.caller = Caller(self.connection, runtime, self._wrapped)
        self._caller, self._own = self.caller, self
        self._closed = False
        self._ending = False  # or ended
        self._lock = runtime.tasks.lock()
        self._open: dict[Closing, None] = {}
        self._at_exit = _close_at_exit(self)
        self._holds = RemoteHolds(self.caller)
        closing: dict[str, Any] = {"check_open": self._check_open, "keep": self.keep, "forget": self.forget}
        self._history = RemoteHistory(self.caller, self.url, **closing)
        self.streams: Any = _CLASSES["streams"](self.caller, self)
        self.bytes = RemoteByteStreams(self.caller, self.streams, **closing).open
        self.scopes: Any = _CLASSES["scopes"](self.caller, self)
        self.aliases: Any = _CLASSES["aliases"](self.caller, self)
        self.cuts: Any = _CLASSES["cuts"](self.caller, self)
        self.lineage: Any = _CLASSES["lineage"](self.caller, self)
        self.archives: Any = _CLASSES["archives"](self.caller, self)
        self.subscribers: Any = _CLASSES["subscribers"](self.caller, self)
        self.policies: Any = _CLASSES["policies"](self.caller, self)
        self.watermarks: Any = _CLASSES["watermarks"](self.caller, self)
        self.groups: Any = _CLASSES["groups"](self.caller, self)
        self.transactions: Any = _CLASSES["transactions"](self.caller, self)
        self.notifications: Any = _CLASSES["notifications"](self.caller, self)
        self.jobs: Any = _CLASSES["jobs"](self.caller, self)
        self.producers: Any = _CLASSES["producers"](self.caller, self)
        self.queries: Any = _CLASSES["queries"](self.caller, self)
        self.templates: Any = _CLASSES["templates"](self.caller, self)
        self.modules: Any = _CLASSES["modules"](self.caller, self)
        self.shared: Any = _CLASSES["shared"](self.caller, self)
        self.ephemeral: Any = _CLASSES["ephemeral"](self.caller, self, self._holds)

    def _facts(self) -> Mapping[str, object]:
        return {"url": shown_address(self.url), "state": "closed" if self._closed else "open"}

    def _wrapped(self, handle: Handle) -> Any:
        if handle.kind == "job":
            return RemoteJob(self.caller, handle.id)
        return self._holds.held(handle)

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
        opened = RemoteWriter(
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
        return self.keep(opened)

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
        opened = Reader(
            BrokerRows(self.connection, self.runtime, stream, options),
            self.runtime,
            rate=rate,
            on_close=self.forget,
            window=lambda position: self.watermarks.window(position.stream, position),
        )
        return self.keep(opened)

    def steps(self) -> Steps:
        """Several calls in one request; see `Steps`. Only for a broker: calls of an embedded store need no request."""
        return Steps(self.caller)

    def keep(self, opened: H) -> H:
        """Close it with the store, and return it. Raises Closed."""
        with self._lock:
            if not self._closed:
                self._open[opened] = None
                return opened
        opened.close()
        raise Closed("store")

    def forget(self, opened: Closing) -> None:
        """It was closed."""
        self._open.pop(opened, None)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("store")

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
        self._check_open()
        info = self._history.open(stream)
        return History(self._history, info.id, info.name)

    def transaction(
        self, ident: str | None = None, *, lease_s: float = limits.TRANSACTION_LEASE_S
    ) -> RemoteTransaction:
        """See `Store.transaction` and `RemoteTransaction`."""
        begun: RemoteTransaction = self.transactions.begin(ident, lease_s=lease_s)
        return begun

    def close(self) -> None:
        """Close the open writers and readers, leave the ephemeral streams that are held here, and close the connection. A
        second call does nothing; after Ctrl-C it does the rest. Raises the first refusal of an accepted event that was not
        raised before."""
        with self._lock:
            if self._ending:
                return
            self._closed = self._ending = True
        try:
            errors = self._end()
        except BaseException:  # a second call or the interpreter's exit does the rest
            self._ending = False
            raise
        atexit.unregister(self._at_exit)
        if errors:
            raise errors[0]

    def _end(self) -> list[AnabranchError]:
        errors = []
        for opened in list(self._open):
            try:
                opened.close()
            except AnabranchError as exc:
                errors.append(exc)
        self._holds.close()
        self.connection.close()
        return errors


def _close_at_exit(store: RemoteStore) -> Callable[[], None]:
    here, process = weakref.ref(store), os.getpid()

    def close() -> None:
        if (opened := here()) is not None and os.getpid() == process:
            opened.close()

    atexit.register(close)
    return close


def _refused(name: str) -> property:
    def refuse(store: RemoteStore) -> Any:
        raise NotRemote(
            f"this needs the store's {name}, so it can't be done through a broker: use the store's own address"
        )

    return property(refuse)


for _name in ("blobs", "catalog", "changes", "companions", "internals", "job_store"):
    setattr(RemoteStore, _name, _refused(_name))
for _name in public_methods(Store):
    if not hasattr(RemoteStore, _name):
        setattr(RemoteStore, _name, remote_method(_name))
