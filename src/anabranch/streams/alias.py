"""Aliases: further names for a stream. Whatever finds a stream by name finds it by these.

A piece of the kind `alias` leads from the name to the stream's id; the catalog itself looks there (`Reading.stream`), so
that a transaction on an alias takes the locks of its stream. A stream's own piece lists its aliases, for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Alias, Checkpointed, Reading, Writing
from anabranch.errors import InvalidArgument, NotFound
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.find import need_free
from anabranch.streams.scope import need_scope

ALIAS: Final = "alias"  # pieces by alias: the stream's id, as a number, since SQL joins by it
_OF: Final = "aliases"  # pieces by stream id: its aliases, by name


def add_alias(txn: Writing, info: StreamInfo, name: StreamName, now: Micros) -> None:
    """Let the stream answer to `name` too; one that does already stays as it is. Raises StreamExists, ScopeNotFound,
    InvalidArgument where it has `limits.ALIASES_MAX`."""
    need_scope(txn, name.scope)
    names = aliases_of(txn, info.id)
    if name in names:
        return
    need_free(txn, name)
    if len(names) >= limits.ALIASES_MAX:
        raise InvalidArgument(f"'{info.name}' has {len(names)} aliases already, and a stream has no more than that")
    txn.put_piece(Checkpointed(ALIAS, str(name), {"stream": info.id}))
    _list(txn, info.id, [*names, name])
    txn.add_change(info.id, "alias added", {"alias": str(name)}, now=now)


def drop_alias(txn: Writing, name: StreamName, now: Micros) -> None:
    """The stream answers to `name` no more, and stays. Raises NotFound, InvalidArgument for a stream's own name."""
    info = txn.stream(name)
    if info is None:
        raise NotFound(f"there is no alias '{name}'; list them with: anabranch alias")
    if info.name == name:
        raise InvalidArgument(f"'{name}' is the stream's own name, not an alias of it")
    txn.drop_piece(ALIAS, str(name))
    _list(txn, info.id, [each for each in aliases_of(txn, info.id) if each != name])
    txn.add_change(info.id, "alias removed", {"alias": str(name)}, now=now)


def move_alias(txn: Writing, stream: StreamId, old: StreamName, new: StreamName) -> None:
    """An alias gets another name. Raises StreamExists."""
    need_free(txn, new)
    txn.drop_piece(ALIAS, str(old))
    txn.put_piece(Checkpointed(ALIAS, str(new), {"stream": stream}))
    _list(txn, stream, [new if each == old else each for each in aliases_of(txn, stream)])


def copy_aliases(txn: Writing, source: str, target: str, now: Micros) -> None:
    """Give the copies in the scope `target` the aliases that their sources have in the scope `source`. Raises
    StreamExists."""
    for alias in aliases(txn, source):
        if alias.leads_to.scope == source:
            copy = txn.stream(StreamName(target, alias.leads_to.name))
            if copy is not None:
                add_alias(txn, copy, StreamName(target, alias.name.name), now)


def aliases(txn: Reading, scope: str | None = None) -> Iterator[Alias]:
    """The aliases in a scope or all, in the order of their texts, a page at a time. Those that were passed may be
    dropped meanwhile."""
    after: StreamName | None = None
    while True:
        page = txn.aliases(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)
        yield from page
        if len(page) < limits.CATALOG_PAGE_ROWS:
            return
        after = page[-1].name


def aliases_of(txn: Reading, stream: StreamId) -> tuple[StreamName, ...]:
    """The aliases of one stream, by name."""
    piece = txn.piece(_OF, f"{stream:016x}")
    names = [] if piece is None else piece.value["names"]
    assert isinstance(names, list)
    return tuple(StreamName.parse(name) for name in names)


def forget_aliases(txn: Writing, stream: StreamId) -> None:
    """The stream is gone, and its aliases with it."""
    names = aliases_of(txn, stream)
    for name in names:
        txn.drop_piece(ALIAS, str(name))
    if names:
        txn.drop_piece(_OF, f"{stream:016x}")


def _list(txn: Writing, stream: StreamId, names: list[StreamName]) -> None:
    ident = f"{stream:016x}"
    if names:
        txn.put_piece(Checkpointed(_OF, ident, {"names": [str(name) for name in sorted(names)]}))
    else:
        txn.drop_piece(_OF, ident)
