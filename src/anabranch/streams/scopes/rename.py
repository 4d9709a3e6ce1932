"""Renaming a scope."""

from __future__ import annotations

from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.former_names import FORMER_SCOPE, FormerScope
from anabranch.errors import ScopeExists
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope
from anabranch.streams.directory.find import need_info
from anabranch.streams.directory.former_names import record_rename
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.names.alias import aliases, move_alias
from anabranch.streams.names.rename import set_name


def move_scope(txn: Writing, old: str, new: str, now: Micros) -> Scope:
    """Rename the scope, its streams and its aliases; their former names resolve to the new ones.

    One transaction, however many streams there are: a half-moved scope would be complete under neither name. Raises
    ScopeNotFound, ScopeExists, InvalidName.
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
            set_name(txn, info, StreamName(new, info.name.name), now)
    for alias in aliases(txn, old):
        move_alias(txn, alias.stream, alias.name, StreamName(new, alias.name.name))
        record_rename(txn, alias.stream, alias.name, need_info(txn, alias.stream).name)
    txn.drop_scope(old)
    for former, _ in txn.states_found(FORMER_SCOPE, old):
        txn.put_state(FORMER_SCOPE, former, FormerScope(new))
    txn.put_state(FORMER_SCOPE, old, FormerScope(new))
    txn.add_change(None, "scope renamed", {"from": old, "to": new}, now=now)
    return moved
