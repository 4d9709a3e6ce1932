"""The store of a broker, with the API of the embedded `Store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from anabranch.core.display import Displayed
from anabranch.errors import NotRemote
from anabranch.model.names import StreamName
from anabranch.remote.address import BrokerAddress
from anabranch.remote.connection import Connection, Credentials
from anabranch.remote.ephemeral import RemoteEphemeral, RemoteHolds
from anabranch.remote.jobs import RemoteJob
from anabranch.remote.verbs import Caller, RemoteNoun, public_methods, remote_method, remote_noun
from anabranch.runtime.ports import Runtime
from anabranch.store.facade import Store
from anabranch.wire.values import Handle
from anabranch.wire.verbs import NOUNS, VERBS

_BASES: Final = {"ephemeral": RemoteEphemeral}
_CLASSES: Final[Mapping[str, Callable[..., Any]]] = {
    noun: remote_noun(noun, _BASES.get(noun, RemoteNoun)) for noun in NOUNS if noun
}


class RemoteStore(Displayed):
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
        self._holds = RemoteHolds(self.caller)
        self.streams: Any = _CLASSES["streams"](self.caller, self)
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
        self.shared: Any = _CLASSES["shared"](self.caller, self)
        self.ephemeral: Any = _CLASSES["ephemeral"](self.caller, self, self._holds)

    def _facts(self) -> Mapping[str, object]:
        return {"url": self.url, "state": "closed" if self._closed else "open"}

    def _wrapped(self, handle: Handle) -> Any:
        if handle.kind == "job":
            return RemoteJob(self.caller, handle.id)
        return self._holds.add(handle)

    @property
    def id(self) -> str:
        """See `Store.id`."""
        found: str = self.caller.call(VERBS["id"], {})
        return found

    def bytes(self, name: str | StreamName, mode: str = "rb", *, follow: bool = False) -> Any:
        """See `ByteStreams.open`."""
        raise NotRemote("byte streams are not served by brokers yet")

    def close(self) -> None:
        """Leave the ephemeral streams that are held here, and close the connection. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._holds.close()
        self.connection.close()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


for _name in public_methods(Store):
    if not hasattr(RemoteStore, _name):
        setattr(RemoteStore, _name, remote_method(_name))
