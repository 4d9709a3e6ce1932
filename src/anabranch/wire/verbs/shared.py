"""Revisioned streams (`anabranch.shared_state.revisioned_stream`) as verbs, by id. Entries are bytes."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.group_name import is_group_stream
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.shared_state.revisioned_stream import RevisionedStream
from anabranch.store.facade import Store
from anabranch.wire.verbs.needs import Arguments, Need, Needs, Operation, stream
from anabranch.wire.verbs.verb import Opened, StoreVerb


def open_revisioned(store: Store, name: str, create: bool = True) -> StreamId:
    """See `SharedState.revisioned`."""
    return store.shared.revisioned(name, create=create).id


def last(store: Store, stream: StreamId) -> tuple[int, bytes] | None:
    """See `RevisionedStream.last`."""
    found = _opened_by_id(store, stream).last()
    return None if found is None else (found.revision, found.value)


def read(store: Store, stream: StreamId, start: int = 0) -> list[tuple[int, bytes]]:
    """See `RevisionedStream.read`: at least one entry if there is any, and at most so many that they fit one answer."""
    found: list[tuple[int, bytes]] = []
    size = 0
    for entry in _opened_by_id(store, stream).read(start):
        size += len(entry.value)
        if found and size > limits.SHARED_READ_BYTES_MAX:
            break
        found.append((entry.revision, entry.value))
    return found


def append(store: Store, stream: StreamId, value: bytes, writer: str, number: int, expected: int | None = None) -> int:
    """See `RevisionedStream.append`. It is the `number`th append of the client `writer`: sent again, it is done
    once."""
    if not (writer.isalnum() and writer.isascii() and len(writer) <= limits.CONSUMER_CHARS_MAX) or number < 0:
        raise InvalidArgument("expected 'writer' as letters and digits, and 'number' from 0 on")
    return _opened_by_id(store, stream).append_numbered(value, expected=expected, writer=writer, number=number)


def _opened_by_id(store: Store, stream: StreamId) -> RevisionedStream:
    """The stream. Raises InvalidArgument for one that the store keeps for itself, such as a reader group's."""
    found = store.shared.by_id(stream)
    name = StreamName.parse(found.name)
    if name.scope.startswith("_") or not name.name.startswith("_") or is_group_stream(name):
        raise InvalidArgument(f"'{name}' is not a revisioned stream of an application")
    return found


def _opened(arguments: Arguments) -> list[Need]:
    # Also on the stream that an alias of this name means, since an existing one is opened.
    opened = Need("read", "stream", arguments.get("name"))
    return [opened] if arguments.get("create") is False else [Need("create", "new", arguments.get("name")), opened]


def _on(operation: Operation) -> Needs:
    return stream(operation, "stream")


_REVISIONED: Final = Opened(RevisionedStream, _opened_by_id)

SHARED_VERBS: Final = (
    StoreVerb("revisioned.append", _on("write"), run=append),
    StoreVerb("revisioned.last", _on("read"), run=last, changes=False),
    StoreVerb("revisioned.latest", _on("read"), of=_REVISIONED, changes=False),
    StoreVerb("revisioned.oldest", _on("read"), of=_REVISIONED, changes=False),
    StoreVerb("revisioned.open", _opened, run=open_revisioned),
    StoreVerb("revisioned.read", _on("read"), run=read, changes=False),
    StoreVerb("revisioned.truncate", _on("manage"), of=_REVISIONED),
)
