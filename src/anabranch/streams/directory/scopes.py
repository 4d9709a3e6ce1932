"""Scopes: create, find, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from anabranch import limits
from anabranch.catalog.port import Alias, Reading, Writing
from anabranch.catalog.state.former_names import FORMER_SCOPE
from anabranch.errors import InvalidArgument, ScopeExists, ScopeNotEmpty, ScopeNotFound, ScopeRenamed
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope, scope_key
from anabranch.model.stream import Scope, StreamInfo

N = TypeVar("N", StreamInfo, Alias)


def create_scope(txn: Writing, name: str, tags: Mapping[str, str], now: Micros) -> Scope:
    """Create a scope. Raises ScopeExists, InvalidName."""
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
    for former, _ in txn.states_found(FORMER_SCOPE, name):
        txn.drop_state(FORMER_SCOPE, former)
    txn.add_change(None, "scope deleted", {"scope": name}, now=now)


def need_scope(txn: Reading, name: str, *, suggest: bool = False) -> Scope:
    """The scope. Raises ScopeNotFound, ScopeRenamed for a former name, InvalidName. `suggest`: see `need_info`."""
    scope = txn.scope(scope_key(name))
    if scope is None:
        found = txn.state(FORMER_SCOPE, name)
        if found is not None:
            raise ScopeRenamed(name, found.to)
        raise ScopeNotFound(name, get_close_matches(name, [each.name for each in txn.scopes()], n=2) if suggest else ())
    return scope


def streams_in(txn: Reading, scope: str | None) -> Iterator[StreamInfo]:
    """The streams of a scope or of all, in name order, read a page at a time."""
    return by_pages(lambda after: txn.streams(scope, after=after, limit=limits.CATALOG_PAGE_ROWS))


def by_pages(next_page: Callable[[StreamName | None], Sequence[N]]) -> Iterator[N]:
    """All streams or aliases. `next_page` returns the `limits.CATALOG_PAGE_ROWS` that follow a name, or fewer at the
    end."""
    after: StreamName | None = None
    while True:
        page = next_page(after)
        yield from page
        if len(page) < limits.CATALOG_PAGE_ROWS:
            return
        after = page[-1].name


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags in stored form. Raises InvalidArgument."""
    if not isinstance(tags, Mapping):
        raise InvalidArgument(f"expected tags as a mapping of str to str, got {type(tags).__name__}")
    if len(tags) > limits.TAGS_MAX:
        raise InvalidArgument(f"expected at most {limits.TAGS_MAX} tags, got {len(tags)}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise InvalidArgument(f"expected tags as a mapping of str to str, got {name!r}: {value!r}")
        try:
            (name + value).encode()
        except UnicodeEncodeError as exc:
            raise InvalidArgument(f"a tag that is not Unicode can't be stored: {name!a:.100}: {value!a:.100}") from exc
        if max(len(name), len(value)) > limits.TAG_CHARS_MAX:
            raise InvalidArgument(f"tag '{name[:20]}' is longer than {limits.TAG_CHARS_MAX} characters")
    return dict(tags)
