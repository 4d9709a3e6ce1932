"""Deleting a scope with all its streams, a page at a time."""

from __future__ import annotations

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros
from anabranch.streams.directory.scopes import drop_scope, need_scope
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.names.alias import aliases, drop_alias


def delete_page(txn: Writing, name: str, now: Micros) -> tuple[int, bool]:
    """Delete the next `limits.SCOPE_PAGE` streams of the scope, including internal ones; after the last page, its
    aliases and the scope. Returns how many streams, and whether the scope was deleted. Raises ScopeNotFound."""
    need_scope(txn, name)
    page = txn.streams(name, limit=limits.SCOPE_PAGE)
    for info in page:
        delete_stream(txn, info.name, now)
    if len(page) == limits.SCOPE_PAGE:
        return len(page), False
    for alias in aliases(txn, name):
        drop_alias(txn, alias.name, now)
    drop_scope(txn, name, now)
    return len(page), True
