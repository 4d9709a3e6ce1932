"""The open stores of a Spark process: one for each place, opened on first use and kept open.

Spark's workers are forked, reused for many tasks, and end without clean-up, so nothing uncommitted may be held here.

A job takes one of two ways to a store that brokers serve: through them, or natively to the store's catalog and blobs. A broker
does not reveal where its store is: a caller who may read a stream through it need not know. So the native way needs option
`nativePath`, which says that every machine of the job reaches the store there. The driver checks that it does itself, and
that it is the brokers' store (`chosen_places`).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from anabranch.core.redact import shown_address
from anabranch.errors import AnabranchError, InvalidArgument, NotRemote, PermissionDenied
from anabranch.errors.system import unavailable
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.remote.address import is_broker
from anabranch.remote.open import connect
from anabranch.runtime.folders import path_text
from anabranch.runtime.log_events import SPARK_PATH
from anabranch.store import Store, StoreAddresses

__all__ = [
    "FORMAT",
    "Access",
    "BrokerAccess",
    "StorePlaces",
    "address_options",
    "addresses_of",
    "chosen_places",
    "is_remote_store",
    "open_store",
    "require_own",
    "stream_options",
]


FORMAT: Final = "anabranch"
"""The name of the data source in Spark."""

Access = Literal["auto", "broker", "native"]
"""How to reach a store that brokers serve: `auto` decides by what the driver finds."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """How each process of a job reaches a store's brokers. It holds no secret: Spark shows options in its plans. The
    token is that in the file, or in the environment variable ANABRANCH_TOKEN; `ca` is a PEM file. Both files are on
    every machine of the job. `native` is where every machine reaches the store itself, and `access` the way that the
    caller wants; see `chosen_places`."""

    url: str
    token_file: str | None = None
    ca: str | None = None
    native: StoreAddresses | None = field(default=None, compare=False)
    access: Access = field(default="auto", compare=False)

    def through_brokers(self) -> BrokerAccess:
        """The same access, through the brokers only."""
        return replace(self, native=None, access="broker")

    def token(self) -> str | None:
        """The token of the file. Raises StoreUnavailable, InvalidArgument."""
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).read_text("ascii").strip()
        except OSError as exc:
            raise unavailable(exc, f"{self.token_file} can't be read") from exc
        except UnicodeDecodeError as exc:
            raise InvalidArgument(f"{self.token_file} does not hold a token, which is ASCII text") from exc


StorePlaces = StoreAddresses | BrokerAccess

_open: dict[tuple[int, StorePlaces, int], Store] = {}
_lock = threading.Lock()


def is_remote_store(store: Store) -> bool:
    """True for a store that a broker serves."""
    return is_broker(store.url)


def require_own(store: Store | str | os.PathLike[str], what: str) -> None:
    """Raise NotRemote for the store of a broker: `what` needs the catalog and files."""
    address = store if isinstance(store, str | os.PathLike) else getattr(store, "url", store)
    if is_broker(path_text("the address of a store", address)):
        raise NotRemote(
            f"{what} needs the store's catalog and files, so it can't be done through a broker: use the store's own address. "
            'Through a broker, Spark reads and writes streams by format("anabranch")'
        )


def addresses_of(store: Store | str | os.PathLike[str]) -> StoreAddresses:
    """The places from which another process can open a store itself. Raises InvalidArgument if no other process can,
    NotRemote for a store of a broker."""
    require_own(store, "this")
    if not isinstance(store, Store):
        return StoreAddresses.of(store)
    addresses = store.addresses or StoreAddresses.of(store.url)
    if "memory://" in (addresses.url, addresses.blobs, addresses.history):
        raise InvalidArgument("Spark's workers are other processes and can't see memory://; use a folder")
    if store.runtime.sealer is not None and addresses.keys is None:
        raise InvalidArgument(
            "Spark's workers are other processes and can't use this key service; open the store with keys='file:…' or 'env:…'"
        )
    return addresses


def address_options(addresses: StoreAddresses) -> dict[str, str]:
    """The data source options that lead to a store."""
    options = {
        "path": addresses.url,
        "blobs": addresses.blobs,
        "history": addresses.history,
        "encryptionKeys": addresses.keys,
    }
    return {name: value for name, value in options.items() if value is not None}


def stream_options(store: Store, name: StreamName, ident: StreamId) -> dict[str, str]:
    """The data source options that lead to a stream, even after it is renamed."""
    return {**address_options(addresses_of(store)), "stream": str(name), "streamId": str(ident)}


def open_store(places: StorePlaces) -> Store:
    """This process's store at these places, shared: never close it. Raises StoreNotFound, and MissingExtra for a broker
    without the extra `remote`."""
    with _lock:
        # The process id, because a store must not be used after a fork; the inode, because a folder may be recreated.
        key = os.getpid(), places, places.inode if isinstance(places, StoreAddresses) else 0
        if key not in _open:
            _open[key] = _opened(places)
        return _open[key]


def _opened(places: StorePlaces) -> Store:
    if isinstance(places, BrokerAccess):
        return connect(places.url, token=places.token(), ca=places.ca)
    return connect(places.url, blobs=places.blobs, history=places.history, keys=places.keys, create=False)


def chosen_places(places: StorePlaces) -> StorePlaces:
    """The places to use, on the driver. For a store that brokers serve, it checks both ways and logs the choice. Raises
    what makes the native way impossible if option `access` demands it."""
    if not isinstance(places, BrokerAccess):
        return places
    native, broker = places.native, places.through_brokers()
    if places.access == "broker":
        return _logged(broker, places, "option 'access' says so")
    if native is None:
        return _logged(broker, places, "option 'nativePath' does not say where the store is")
    try:
        _check_same(native, broker)
    except AnabranchError as exc:
        if places.access == "native":
            raise
        return _logged(broker, places, str(exc))
    reason = "option 'access' says so" if places.access == "native" else "the driver reaches the brokers' store there"
    return _logged(native, places, reason)


def _check_same(native: StoreAddresses, broker: BrokerAccess) -> None:
    """Raise what keeps this process from the native store, and InvalidArgument if the brokers serve another one."""
    own = open_store(native).id
    try:
        served = open_store(broker).id
    except PermissionDenied as exc:
        raise PermissionDenied(
            f"whether 'nativePath' is the brokers' store is unknown: its id needs the right to read the store: {exc}"
        ) from exc
    if own != served:
        raise InvalidArgument(
            f"'nativePath' is another store than that of the brokers: {shown_address(native.url)} has the id {own}, "
            f"and {broker.url} serves {served}"
        )


def _logged(taken: StorePlaces, places: BrokerAccess, reason: str) -> StorePlaces:
    way = "through its brokers" if isinstance(taken, BrokerAccess) else "natively"
    SPARK_PATH(store=places.url, way=way, reason=reason)
    return taken
