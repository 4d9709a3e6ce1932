"""Scopes: make, find, drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.errors import InvalidArgument, ScopeExists, ScopeNotEmpty, ScopeNotFound, ScopeRenamed
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope, StreamInfo

RENAMED_SCOPE: Final = "renamed scope"  # pieces by former name of a scope: what it is called now


def create_scope(txn: Writing, name: str, tags: Mapping[str, str], now: Micros) -> Scope:
    """Raises ScopeExists, InvalidName."""
    if txn.scope(check_scope(name)) is not None:
        raise ScopeExists(name)
    scope = Scope(name, check_tags(tags), now)
    txn.put_scope(scope)
    txn.add_change(None, "scope created", {"scope": name}, now=now)
    return scope


def delete_scope(txn: Writing, name: str, now: Micros) -> None:
    """Delete an empty scope. Raises ScopeNotFound, ScopeNotEmpty."""
    need_scope(txn, name)
    if streams := txn.streams(name):
        raise ScopeNotEmpty(name, len(streams))
    drop_scope(txn, name, now)


def drop_scope(txn: Writing, name: str, now: Micros) -> None:
    """Remove an empty scope, and its former names."""
    txn.drop_scope(name)
    for piece in txn.pieces(RENAMED_SCOPE):
        if piece.value["to"] == name:
            txn.drop_piece(RENAMED_SCOPE, piece.name)
    txn.add_change(None, "scope deleted", {"scope": name}, now=now)


def need_scope(txn: Reading, name: str) -> Scope:
    """The scope. Raises ScopeNotFound, ScopeRenamed for a former name."""
    scope = txn.scope(name)
    if scope is None:
        piece = txn.piece(RENAMED_SCOPE, name)
        if piece is not None:
            raise ScopeRenamed(name, str(piece.value["to"]))
        raise ScopeNotFound(name)
    return scope


def streams_in(txn: Reading, scope: str | None) -> Iterator[StreamInfo]:
    """The streams of a scope or of all, by name, a page at a time."""
    after: StreamName | None = None
    while True:
        page = txn.streams(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)
        yield from page
        if len(page) < limits.CATALOG_PAGE_ROWS:
            return
        after = page[-1].name


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as they are stored. Raises InvalidArgument."""
    if not isinstance(tags, Mapping):
        raise InvalidArgument(f"tags are a mapping of text to text, not {type(tags).__name__}")
    if len(tags) > limits.TAGS_MAX:
        raise InvalidArgument(f"at most {limits.TAGS_MAX} tags, not {len(tags)}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise InvalidArgument("tags are text by text")
        if max(len(name), len(value)) > limits.TAG_CHARS_MAX:
            raise InvalidArgument(f"tag '{name[:20]}' is longer than {limits.TAG_CHARS_MAX} characters")
    return dict(tags)
