"""Scopes, as methods of the stream manager: make, list, rename, copy, delete. What streams are to files, they are to
folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.copy import Copied
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope
from anabranch.streams.arguments import said
from anabranch.streams.companions import Companions
from anabranch.streams.copy_scope import copy_page, prepare_scope
from anabranch.streams.delete_scope import delete_page
from anabranch.streams.move_scope import move_scope
from anabranch.streams.requests import Result, check_request, page_of
from anabranch.streams.scope import create_scope, delete_scope, need_scope, streams_in
from anabranch.streams.told import heard_scope, told_scope


class Scopes(Companions):
    """What `Streams` does with scopes."""

    def create_scope(
        self, name: str, *, tags: Mapping[str, str] | None = None, exist_ok: bool = False, request: str | None = None
    ) -> Scope:
        """A new scope. Raises ScopeExists (not with `exist_ok`), InvalidName."""

        def act(txn: Writing, now: Micros) -> Result:
            present = txn.scope(name) if exist_ok else None
            return told_scope(present or create_scope(txn, name, tags or {}, now))

        return heard_scope(self._change(f"create scope {name}{said(tags=tags, exist_ok=exist_ok)}", request, act))

    def delete_scope(
        self, name: str, *, recursive: bool = False, progress: Watch = silent, request: str | None = None
    ) -> None:
        """Remove an empty scope; with `recursive` one with all it holds, the store's own streams in it too.

        Then 64 streams (`limits.SCOPE_PAGE`) are deleted a transaction, each whole; asked again after an interruption it
        goes on. Aliases of them in other scopes go, as do aliases in this scope of streams elsewhere. `progress` counts
        streams. Pipelines are not looked at: one that reads or writes what is gone fails. Raises ScopeNotEmpty.
        """
        if not recursive:

            def act(txn: Writing, now: Micros) -> Result:
                delete_scope(txn, name, now)
                return {}

            self._change(f"delete scope {name}", request, act)
            return

        def next_page(txn: Writing, now: Micros, last: Mapping[str, Any] | None) -> Result:
            count, over = delete_page(txn, name, now)
            return {"count": count, "over": over}

        done, total = 0, self._count(name, progress, internal=True)
        for page in self._pages(f"delete scope {name} and all it holds", request, next_page):
            done += page["count"]
            progress("deleting", done, max(done, total))
        self.sweep_orphans()

    def move_scope(self, scope: str, to: str, *, request: str | None = None) -> Scope:
        """Give a scope another name, which its streams and aliases then have too; readers and writers go on.

        All of it is one transaction, about 0.1 ms a stream on SQLite, where appends wait for it too, and 1 ms on PostgreSQL,
        where other changes wait. Former names lead
        to the new ones: those of streams answer StreamRenamed, that of the scope ScopeRenamed. A pipeline that names
        streams of the scope has to be told. Raises ScopeNotFound, ScopeExists, InvalidName.
        """
        check_scope(to)

        def act(txn: Writing, now: Micros) -> Result:
            return told_scope(move_scope(txn, scope, to, now))

        return heard_scope(self._change(f"move scope {scope} {to}", request, act))

    def copy_scope(
        self,
        source: str,
        target: str,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        progress: Watch = silent,
        request: str | None = None,
    ) -> list[Copied]:
        """Copy the streams of a scope into another, which is made with the same tags if need be.

        The store's own streams come along only with `internal`, ephemeral ones only with `ephemeral`: their copies last.
        So do the aliases that streams of the scope have in it; they lead to the copies. 64 streams (`limits.SCOPE_PAGE`)
        are copied a transaction, each whole or not at all. Where the call was interrupted, or refused because a name is
        taken, asking again goes on: what was copied stays as it is. `progress` counts streams. Raises StreamExists.
        """
        check_scope(target)

        def next_page(txn: Writing, now: Micros, last: Mapping[str, Any] | None) -> Result:
            if last is None:
                prepare_scope(txn, source, target, now)
            after = None if last is None else StreamName.parse(last["after"])
            options = {"internal": internal, "ephemeral": ephemeral}
            found, end = copy_page(txn, source, target, now, after=after, new_id=self._new_id, **options)
            over = {"over": end is None, "after": None if end is None else str(end)}
            return {"copies": [each.to_json() for each in found], **over}

        operation = f"copy scope {source} {target}{said(internal=internal, ephemeral=ephemeral)}"
        copies: list[Copied] = []
        total = self._count(source, progress, internal=internal)
        for page in self._pages(operation, request, next_page):
            copies += [Copied.from_json(each) for each in page["copies"]]
            progress("copying", len(copies), len(copies) if page["over"] else max(total, len(copies)))
        return copies

    def scope(self, name: str) -> Scope:
        """One scope."""
        with self._catalog.reading() as txn:
            return need_scope(txn, name)

    def scopes(self) -> list[Scope]:
        """All scopes, by name."""
        with self._catalog.reading() as txn:
            return txn.scopes()

    def _pages(
        self,
        operation: str,
        request: str | None,
        next_page: Callable[[Writing, Micros, Mapping[str, Any] | None], Result],
    ) -> Iterator[Mapping[str, Any]]:
        """A change in several transactions, each with its own request id, until one says that it is `over`. Asked again,
        those that were made tell their results again, and the rest follows."""
        check_request(request)
        last: Mapping[str, Any] | None = None
        number = 0
        while last is None or not last["over"]:

            def act(txn: Writing, now: Micros, last: Mapping[str, Any] | None = last) -> Result:
                return next_page(txn, now, last)

            last = self._asked(operation, page_of(request, number), act)
            yield last
            number += 1

    def _count(self, scope: str, progress: Watch, *, internal: bool) -> int:
        """How many streams the scope holds now, if anybody wants to know."""
        if progress is silent:
            return 0
        with self._catalog.reading() as txn:
            return sum(internal or not info.name.internal for info in streams_in(txn, scope))
