"""Giving a scope another name."""

from __future__ import annotations

from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Checkpointed, Writing
from anabranch.errors import ScopeExists
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope
from anabranch.streams.alias import aliases, move_alias
from anabranch.streams.find import need_info
from anabranch.streams.former import remember
from anabranch.streams.rename import give_name
from anabranch.streams.scope import RENAMED_SCOPE, need_scope


def move_scope(txn: Writing, old: str, new: str, now: Micros) -> Scope:
    """All its streams and aliases get the names they have in `new`, and their former names lead there.

    One transaction, however many they are: a scope that is half moved would show neither where it was nor where it goes.
    Raises ScopeNotFound, ScopeExists, InvalidName.
    """
    scope = need_scope(txn, old)
    if check_scope(new) == old:
        return scope
    if txn.scope(new) is not None:
        raise ScopeExists(new)
    moved = replace(scope, name=new)
    txn.put_scope(moved)
    while page := txn.streams(old, limit=limits.CATALOG_PAGE_ROWS):
        for info in page:
            give_name(txn, info, StreamName(new, info.name.name), now)
    for alias in aliases(txn, old):
        move_alias(txn, alias.stream, alias.name, StreamName(new, alias.name.name))
        remember(txn, alias.stream, alias.name, need_info(txn, alias.stream).name)
    txn.drop_scope(old)
    for piece in txn.pieces(RENAMED_SCOPE):
        if piece.value["to"] == old:
            txn.put_piece(Checkpointed(RENAMED_SCOPE, piece.name, {"to": new}))
    txn.put_piece(Checkpointed(RENAMED_SCOPE, old, {"to": new}))
    txn.add_change(None, "scope renamed", {"from": old, "to": new}, now=now)
    return moved
