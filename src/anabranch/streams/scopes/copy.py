"""Copying the streams of a scope into another, a page at a time."""

from __future__ import annotations

from collections.abc import Callable

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.copy import CopyResult
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.streams.algebra.copy import copy_view
from anabranch.streams.directory.scopes import create_scope, need_scope
from anabranch.streams.lifecycle.holders import ephemeral_among
from anabranch.streams.names.alias import copy_aliases


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
