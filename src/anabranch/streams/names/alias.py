"""Aliases: additional names of a stream. Every lookup of a stream by name accepts them too.

A row of the catalog's table `aliases` maps the alias to the stream's id. The catalog itself resolves it
(`Reading.stream`), so that a transaction on an alias takes the locks of its stream.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch import limits
from anabranch.catalog.port import Alias, Reading, Writing
from anabranch.errors import InvalidArgument, NotFound
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.streams.directory.find import need_free
from anabranch.streams.directory.scopes import by_pages, need_scope


def add_alias(txn: Writing, info: StreamInfo, name: StreamName, now: Micros) -> None:
    """Add the alias `name` to the stream, if it does not have it already. Raises StreamExists, ScopeNotFound,
    InvalidArgument if the stream has `limits.ALIASES_MAX` aliases."""
    need_scope(txn, name.scope)
    names = txn.aliases_of(info.id)
    if name in names:
        return
    need_free(txn, name)
    if len(names) >= limits.ALIASES_MAX:
        raise InvalidArgument(f"'{info.name}' already has {len(names)} aliases, the maximum: remove one first")
    txn.put_alias(name, info.id)
    txn.add_change(info.id, "alias added", {"alias": str(name)}, now=now)


def drop_alias(txn: Writing, name: StreamName, now: Micros) -> None:
    """Remove the alias `name`; the stream stays. Raises NotFound, InvalidArgument for a stream's own name."""
    info = txn.stream(name)
    if info is None:
        raise NotFound(f"alias '{name}' not found; list aliases with: anabranch alias")
    if info.name == name:
        raise InvalidArgument(f"expected an alias, but '{name}' is the stream's own name")
    txn.drop_alias(name)
    txn.add_change(info.id, "alias removed", {"alias": str(name)}, now=now)


def move_alias(txn: Writing, stream: StreamId, old: StreamName, new: StreamName) -> None:
    """Rename an alias. Raises StreamExists."""
    need_free(txn, new)
    txn.drop_alias(old)
    txn.put_alias(new, stream)


def copy_aliases(txn: Writing, source: str, target: str, now: Micros) -> None:
    """Give the copies in the scope `target` the aliases that their sources have in the scope `source`. Raises
    StreamExists."""
    for alias in aliases(txn, source):
        if alias.stream_name.scope == source:
            copy = txn.stream(StreamName(target, alias.stream_name.name))
            if copy is not None:
                add_alias(txn, copy, StreamName(target, alias.name.name), now)


def aliases(txn: Reading, scope: str | None = None) -> Iterator[Alias]:
    """The aliases in a scope or all, in the order of their texts, a page at a time. Those already returned may be
    dropped during the iteration."""
    return by_pages(lambda after: txn.aliases(scope, after=after, limit=limits.CATALOG_PAGE_ROWS))


def forget_aliases(txn: Writing, stream: StreamId) -> None:
    """Remove the aliases of a deleted stream."""
    for name in txn.aliases_of(stream):
        txn.drop_alias(name)
