"""Scopes: create, drop, list."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.errors import InvalidArgument, ScopeExists, ScopeNotEmpty, ScopeNotFound
from anabranch.model.ids import Micros
from anabranch.model.names import check_scope
from anabranch.model.stream import Scope


def create_scope(txn: Writing, name: str, tags: Mapping[str, str], now: Micros) -> Scope:
    """Raises ScopeExists, InvalidName."""
    if txn.scope(check_scope(name)) is not None:
        raise ScopeExists(name)
    scope = Scope(name, check_tags(tags), now)
    txn.put_scope(scope)
    txn.add_change(None, "scope created", {"scope": name}, now=now)
    return scope


def delete_scope(txn: Writing, name: str, now: Micros) -> None:
    """Raises ScopeNotFound, ScopeNotEmpty."""
    need_scope(txn, name)
    if streams := txn.streams(name):
        raise ScopeNotEmpty(name, len(streams))
    txn.drop_scope(name)
    txn.add_change(None, "scope deleted", {"scope": name}, now=now)


def need_scope(txn: Reading, name: str) -> Scope:
    """The scope. Raises ScopeNotFound."""
    scope = txn.scope(name)
    if scope is None:
        raise ScopeNotFound(name)
    return scope


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as they are stored. Raises InvalidArgument."""
    if len(tags) > limits.TAGS_MAX:
        raise InvalidArgument(f"at most {limits.TAGS_MAX} tags, not {len(tags)}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise InvalidArgument("tags are text by text")
        if max(len(name), len(value)) > limits.TAG_CHARS_MAX:
            raise InvalidArgument(f"tag '{name[:20]}' is longer than {limits.TAG_CHARS_MAX} characters")
    return dict(tags)
