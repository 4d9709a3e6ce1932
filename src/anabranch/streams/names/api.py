"""Aliases of streams, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch import limits
from anabranch.catalog.port import Alias, Writing
from anabranch.core.display import Displayed
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.streams.arguments import StreamKey, request_label, stream_key
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info
from anabranch.streams.directory.scopes import by_pages, need_scope
from anabranch.streams.names.alias import add_alias, drop_alias

Name = str | StreamName


class Aliases(Displayed):
    """Additional names of streams. An alias may be used wherever a name is accepted. Open readers and writers identify
    their stream by its id, so changes of names do not affect them."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime

    def add(self, stream: StreamKey, name: Name, *, request: str | None = None) -> None:
        """Add an alias to a stream, in any scope; every operation accepts it.

        An alias follows its stream through renames, and is deleted with it. Deleting by an alias deletes the stream. A
        repeated call changes nothing. Raises StreamExists where the name is taken, by a stream or an alias of another;
        ScopeNotFound, InvalidArgument where the stream has `limits.ALIASES_MAX`.
        """
        full, new = stream_key(stream), StreamName.parse(name)

        def change(txn: Writing, now: Micros) -> None:
            add_alias(txn, need_info(txn, full), new, now)

        self._changes.apply(f"alias {request_label(full)} {new}", request, change)

    def remove(self, name: Name, *, request: str | None = None) -> None:
        """Remove an alias; the stream stays. Raises NotFound, InvalidArgument for a stream's own name."""
        full = StreamName.parse(name)
        self._changes.apply(f"unalias {full}", request, lambda txn, now: drop_alias(txn, full, now))

    def of(self, stream: StreamKey | None = None) -> dict[StreamName, StreamName]:
        """The aliases of a stream, or all, by name, each with its stream's current name. Loads all of them; where there
        may be many, use `list`."""
        if stream is None:
            return dict(self.list())
        with self._catalog.reading() as txn:
            info = need_info(txn, stream_key(stream))
            return dict.fromkeys(txn.aliases_of(info.id), info.name)

    def list(self, scope: str | None = None) -> Iterator[tuple[StreamName, StreamName]]:
        """Aliases in the order of their texts, those in one scope or all, each with its stream's current name. They are
        read a page at a time, as `Streams.list` reads streams. Raises ScopeNotFound."""
        with self._catalog.reading() as txn:
            if scope is not None:
                need_scope(txn, scope)

        def next_page(after: StreamName | None) -> Sequence[Alias]:
            with self._catalog.reading() as txn:
                return txn.aliases(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)

        for alias in by_pages(next_page):
            yield alias.name, alias.stream_name
