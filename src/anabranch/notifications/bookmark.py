"""Bookmarks: the position of a named listener, so that it continues there in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.catalog.state.listener import LISTENER, LastDelivered, ListenerRow
from anabranch.errors import AppendUncertain, Conflict, InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import check_free_name
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

T = TypeVar("T")
KIND: Final = "listener"  # begins the subject of each transaction on a listener's row


class ListenerBookmark:
    """The bookmark of one listener: to one `stream`, to all streams if it is None, or to one kind of a reader group's
    notifications, with `group` as `KIND of NAME`. The last process that took the bookmark over owns it. Any number of
    processes may have an object for it; each object is for one thread at a time."""

    def __init__(
        self, catalog: Catalog, runtime: Runtime, name: str, stream: StreamId | None, *, group: str | None = None
    ) -> None:
        """Raises InvalidArgument for an invalid name."""
        self._catalog = catalog
        self._name = check_free_name(name, "listener")
        self._stream = stream
        self._group = group
        self._owner = token(runtime.ids)

    def take_over(self) -> LastDelivered | None:
        """Become the owner; the previous owner then gets Conflict. Returns the position, or None if nothing was
        delivered under this name. Raises InvalidArgument if the name is used for another stream or group."""

        def change(txn: Writing) -> LastDelivered | None:
            row = txn.state(LISTENER, self._name)
            if row is None:
                self._put(txn, None)
                return None
            if (row.stream, row.group) != (self._stream, self._group):
                raise InvalidArgument(
                    f"listener '{self._name}' exists for another stream or group; choose another name, or reset it with"
                    " store.notifications.forget_listener"
                )
            self._put(txn, row.delivered)
            return row.delivered

        return self._write(change)

    def save(self, position: LastDelivered) -> None:
        """Record, durably, what was delivered to the listener. Raises Conflict where another process has taken over the
        name."""

        def change(txn: Writing) -> None:
            self._require_owner(txn)
            self._put(txn, position)

        self._write(change)

    def check(self) -> None:
        """Raise Conflict where another process has taken over the name."""
        with self._catalog.reading() as reading:
            self._require_owner(reading)

    def _require_owner(self, txn: Reading) -> None:
        row = txn.state(LISTENER, self._name)
        if row is None or row.owner != self._owner:
            raise Conflict(f"another process has taken over listener '{self._name}', or it was reset")

    def _put(self, txn: Writing, delivered: LastDelivered | None) -> None:
        txn.put_state(LISTENER, self._name, ListenerRow(self._stream, self._group, self._owner, delivered))

    def _write(self, change: Callable[[Writing], T]) -> T:
        try:
            return self._write_once(change)
        except AppendUncertain:
            return self._write_once(change)  # idempotent

    def _write_once(self, change: Callable[[Writing], T]) -> T:
        with self._catalog.writing(f"{KIND} {self._name}") as txn:
            return change(txn)


def reset_listener(catalog: Catalog, name: str) -> None:
    """Reset a listener of this name, so that it starts from the beginning. No-op for an unknown name."""
    with catalog.writing(f"{KIND} {name}") as txn:
        txn.drop_state(LISTENER, name)
