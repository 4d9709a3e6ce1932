"""Attached files, which the store reads in place. A key's prefix says to which attachment a file belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from anabranch.blobs.keys import is_attached, split_attached
from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.errors import BlobMissing, ReadOnlyStore, StoreNotFound
from anabranch.runtime.tasks import Tasks

# From an attachment's id to its place; None if there is no such attachment.
LocateAttachment = Callable[[str], str | None]
OpenLocation = Callable[[str], Blobs]


class AttachedBlobs:
    """`blobs.port.Blobs` of a store and of the places attached to it. An attached place is opened when it is first
    read, and is never changed.

    `locate` is called when an attachment is first used, so attachments made by other processes are found too.
    """

    def __init__(self, own: Blobs, tasks: Tasks, *, locate: LocateAttachment, open_location: OpenLocation) -> None:
        self._own = own
        self._locate = locate
        self._open_place = open_location
        self._lock = tasks.lock()
        self._open: dict[str, Blobs] = {}  # by attachment
        self._places: dict[str, Blobs] = {}

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        if is_attached(key):
            raise ReadOnlyStore(f"{key} was attached: the store never writes there")
        self._own.put(key, chunks)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        if not is_attached(key):
            return self._own.get(key, offset, length)
        blobs, name = self._find(key)
        try:
            return blobs.get(name, offset, length)
        except BlobMissing as exc:
            raise BlobMissing(key, blobs.path(name)) from exc

    def size(self, key: str) -> int | None:
        if not is_attached(key):
            return self._own.size(key)
        try:
            blobs, name = self._find(key)
        except BlobMissing:
            return None
        return blobs.size(name)

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See the port. Attached files are not listed."""
        return self._own.list(prefix)

    def delete(self, key: str) -> None:
        """See the port. Attached files are not removed."""
        if not is_attached(key):
            self._own.delete(key)

    def path(self, key: str) -> str:
        if not is_attached(key):
            return self._own.path(key)
        blobs, name = self._find(key)
        return blobs.path(name)

    def close(self) -> None:
        with self._lock:
            places, self._places, self._open = list(self._places.values()), {}, {}
        for each in places:
            each.close()
        self._own.close()

    def _find(self, key: str) -> tuple[Blobs, str]:
        """The blob store of the file's place, and its name there. Raises BlobMissing."""
        found = split_attached(key)
        if found is None:
            raise BlobMissing(key)
        attachment, name = found
        opened = self._open.get(attachment)
        if opened is None:
            place = self._locate(attachment)
            if place is None:
                raise BlobMissing(key)
            opened = self._open_at(attachment, place, key, name)
        return opened, name

    def _open_at(self, attachment: str, place: str, key: str, name: str) -> Blobs:
        with self._lock:
            blobs = self._places.get(place)
            if blobs is None:
                try:
                    blobs = self._places[place] = self._open_place(place)
                except StoreNotFound as exc:
                    raise BlobMissing(key, f"{place}/{name}") from exc
            self._open[attachment] = blobs
        return blobs
