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
from anabranch.streams.copy import copy_stream
from anabranch.streams.requests import Result, once
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
    request: str | None,
    new_id: Callable[[], StreamId],
) -> tuple[list[Copied], StreamName | None]:
    """Copy the next `limits.SCOPE_COPY_PAGE` streams of the scope; those that are copies already stay as they are.
    Returns them, and the last name that was looked at, None at the end. Raises StreamExists where a target's name
    belongs to something else: then nothing of this page was copied."""
    page = txn.streams(source, after=after, limit=limits.SCOPE_COPY_PAGE)
    done = []
    for info in page:
        if info.name.internal and not internal:
            continue
        done.append(_copy(txn, info.name, StreamName(target, info.name.name), new_id(), now, request))
    return done, page[-1].name if len(page) == limits.SCOPE_COPY_PAGE else None


def _copy(
    txn: Writing, source: StreamName, target: StreamName, stream: StreamId, now: Micros, request: str | None
) -> Copied:
    part = StreamRange.of(source)

    def act() -> Result:
        return copy_stream(txn, part, target, stream, now).to_json()

    own = None if request is None else f"{request}/{source}"
    return Copied.from_json(once(txn, own, f"copy {part} {target}", now, act))
