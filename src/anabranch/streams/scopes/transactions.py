"""The transactions on scopes: each copies or deletes a page of their streams, or renames one with all its streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.former_names import FORMER_SCOPE, FormerScope
from anabranch.core.copy import CopyResult
from anabranch.errors import InvalidArgument, ScopeExists
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import copy_view
from anabranch.streams.directory.find import need_info
from anabranch.streams.directory.former_names import record_rename
from anabranch.streams.directory.scopes import create_scope, drop_scope, need_scope
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.names.alias import aliases, copy_aliases, drop_alias, move_alias
from anabranch.streams.names.rename import set_name


def prepare_scope(txn: Writing, source: str, target: str, now: Micros) -> None:
    """Create the target scope with the source's tags, unless it exists. Raises ScopeNotFound, InvalidArgument."""
    tags = need_scope(txn, source).tags
    if source == target:
        raise InvalidArgument(f"scope '{source}' can't be copied onto itself")
    if txn.scope(target) is None:
        create_scope(txn, target, tags, now)


def copy_page(
    txn: Writing,
    source: str,
    target: str,
    now: Micros,
    *,
    after: StreamName | None,
    internal: bool,
    ephemeral: bool,
    new_id: Callable[[], StreamId],
) -> tuple[list[CopyResult], StreamName | None]:
    """Copy the next `limits.SCOPE_PAGE` streams of the scope, internal and ephemeral ones only if requested; existing
    copies stay as they are. Aliases are copied after the last page.

    Returns the copies, and the last name read, None at the end. Raises StreamExists where a target's name belongs to
    another stream: then nothing of this page was copied; ScopeNotFound where the scope was deleted in between.
    """
    need_scope(txn, source)
    page = txn.streams(source, after=after, limit=limits.SCOPE_PAGE)
    skipped = frozenset() if ephemeral else ephemeral_among(txn, [info.id for info in page])
    need_scope(txn, target)
    chosen = [info.id for info in page if (internal or not info.name.internal) and info.id not in skipped]
    done = [
        copy_view(txn, view, StreamRange(view.info.name), StreamName(target, view.info.name.name), new_id(), now)
        for view in txn.views(chosen).values()
    ]
    if len(page) == limits.SCOPE_PAGE:
        return done, page[-1].name
    copy_aliases(txn, source, target, now)
    return done, None


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
