"""What streams are called, as methods of the stream manager: rename, move, alias."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import StreamInfo
from anabranch.streams.alias import add_alias, aliases_of, drop_alias
from anabranch.streams.arguments import Which, shown, which
from anabranch.streams.change import Changes
from anabranch.streams.find import need_info
from anabranch.streams.rename import rename_stream
from anabranch.streams.requests import Result
from anabranch.streams.scope import need_scope
from anabranch.streams.told import heard_info, told_info

Name = str | StreamName


class Naming(Changes):
    """What `Streams` does with names. Readers and writers that are open know their stream by its id, and go on."""

    def rename(self, stream: Which, name: Name, *, request: str | None = None) -> StreamInfo:
        """Give a stream another name, in its scope or in another. Its aliases stay.

        From then on the old name answers StreamRenamed, which carries the new one, until a stream is made under it.
        Raises StreamExists, ScopeNotFound.
        """
        old, new = which(stream), StreamName.parse(name)

        def act(txn: Writing, now: Micros) -> Result:
            return told_info(rename_stream(txn, old, new, now))

        return heard_info(self._change(f"rename {shown(old)} {new}", request, act))

    def move(self, stream: Which, scope: str, *, request: str | None = None) -> StreamInfo:
        """Move a stream into another scope, where it has the same name; by an alias, its own. Raises as `rename`."""
        full = which(stream)
        check_scope(scope)

        def act(txn: Writing, now: Micros) -> Result:
            info = need_info(txn, full)
            return told_info(rename_stream(txn, info.name, StreamName(scope, info.name.name), now))

        return heard_info(self._change(f"move {shown(full)} {scope}", request, act))

    def alias(self, stream: Which, name: Name, *, request: str | None = None) -> None:
        """Let a stream answer to one more name, in any scope, for whatever is done with it.

        An alias follows its stream through renames, and is gone with it. Deleting by an alias deletes the stream. Asked
        again, nothing changes. Raises StreamExists where the name is taken, by a stream or an alias of another;
        ScopeNotFound, InvalidArgument where the stream has `limits.ALIASES_MAX`.
        """
        full, new = which(stream), StreamName.parse(name)

        def act(txn: Writing, now: Micros) -> Result:
            add_alias(txn, need_info(txn, full), new, now)
            return {}

        self._change(f"alias {shown(full)} {new}", request, act)

    def unalias(self, name: Name, *, request: str | None = None) -> None:
        """Take an alias away; the stream stays. Raises NotFound, InvalidArgument for a stream's own name."""
        full = StreamName.parse(name)

        def act(txn: Writing, now: Micros) -> Result:
            drop_alias(txn, full, now)
            return {}

        self._change(f"unalias {full}", request, act)

    def aliases(self, stream: Which | None = None) -> dict[StreamName, StreamName]:
        """The aliases of a stream, or all there are, by name; with what each stream is called now. Where there may be
        many, `list_aliases` does not hold them all."""
        if stream is None:
            return dict(self.list_aliases())
        with self._catalog.reading() as txn:
            info = need_info(txn, which(stream))
            return dict.fromkeys(aliases_of(txn, info.id), info.name)

    def list_aliases(self, scope: str | None = None) -> Iterator[tuple[StreamName, StreamName]]:
        """Aliases in the order of their texts, those in one scope or all, each with what its stream is called now. They
        are read a page at a time, as `list` reads streams. Raises ScopeNotFound."""
        with self._catalog.reading() as txn:
            if scope is not None:
                need_scope(txn, scope)
        after: StreamName | None = None
        while True:
            with self._catalog.reading() as txn:
                page = txn.aliases(scope, after=after, limit=limits.CATALOG_PAGE_ROWS)
            yield from ((alias.name, alias.leads_to) for alias in page)
            if len(page) < limits.CATALOG_PAGE_ROWS:
                return
            after = page[-1].name
