"""Copying the streams of a scope into another, a portion at a time."""

from __future__ import annotations

from collections.abc import Callable

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.copy import Copied
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.streams.alias import copy_aliases
from anabranch.streams.copy import copy_view
from anabranch.streams.ephemeral import ephemeral_streams
from anabranch.streams.scope import create_scope, need_scope


def prepare_scope(txn: Writing, source: str, target: str, now: Micros) -> None:
    """Make the target scope with the source's tags, unless there is one. Raises ScopeNotFound, InvalidArgument."""
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
) -> tuple[list[Copied], StreamName | None]:
    """Copy the next `limits.SCOPE_PAGE` streams of the scope, the store's own and ephemeral ones only if asked; those
    that are copies already stay as they are. Behind the last come the aliases.

    Returns the copies, and the last name that was looked at, None at the end. Raises StreamExists where a target's name
    belongs to something else: then nothing of this page was copied; ScopeNotFound where the scope went meanwhile.
    """
    need_scope(txn, source)
    page = txn.streams(source, after=after, limit=limits.SCOPE_PAGE)
    left_out = set() if ephemeral else {*ephemeral_streams(txn)}
    need_scope(txn, target)
    chosen = [info.id for info in page if (internal or not info.name.internal) and info.id not in left_out]
    done = [
        copy_view(txn, view, StreamRange(view.info.name), StreamName(target, view.info.name.name), new_id(), now)
        for view in txn.views(chosen).values()
    ]
    if len(page) == limits.SCOPE_PAGE:
        return done, page[-1].name
    copy_aliases(txn, source, target, now)
    return done, None
