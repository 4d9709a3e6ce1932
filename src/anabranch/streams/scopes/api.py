"""Scopes, as methods of the stream manager: create, list, rename, copy, delete. Scopes are to streams as folders are to
files."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.copy import CopyResult
from anabranch.core.display import Displayed
from anabranch.core.list_filter import ListFilter, Tags
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream import Scope
from anabranch.streams.arguments import arguments_text
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.directory.scopes import create_scope, delete_scope, need_scope, streams_in
from anabranch.streams.requests import Result, check_request, page_request
from anabranch.streams.results_json import scope_from_json, scope_to_json
from anabranch.streams.scopes.transactions import copy_page, delete_page, move_scope, prepare_scope


class Scopes(Displayed):
    """Scopes by name: they are to streams what folders are to files. Every change is durable when its call returns, and
    takes a `request` id, like the methods of `Streams`."""

    def __init__(self, changes: Changes, companions: Companions) -> None:
        self._changes = changes
        self._catalog = changes.catalog
        self._runtime = changes.runtime
        self._companions = companions

    def create(
        self, name: str, *, tags: Mapping[str, str] | None = None, exist_ok: bool = False, request: str | None = None
    ) -> Scope:
        """Create a scope. Raises ScopeExists (not with `exist_ok`), InvalidName."""

        def change(txn: Writing, now: Micros) -> Result:
            present = txn.scope(name) if exist_ok else None
            return scope_to_json(present or create_scope(txn, name, tags or {}, now))

        return scope_from_json(
            self._changes.apply(f"create scope {name}{arguments_text(tags=tags, exist_ok=exist_ok)}", request, change)
        )

    def delete(
        self,
        name: str,
        *,
        recursive: bool = False,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> None:
        """Delete an empty scope; with `recursive`, also its streams, including the store's internal ones.

        With `recursive`, 64 streams (`limits.SCOPE_PAGE`) are deleted per transaction, each entirely; a repeated call
        after an interruption continues. Aliases of these streams in other scopes are removed, as are aliases in this
        scope of streams elsewhere. `progress` counts streams. Pipelines are not checked: one that reads or writes a
        deleted stream fails. Raises ScopeNotEmpty.
        """
        if not recursive:
            self._changes.apply(f"delete scope {name}", request, lambda txn, now: delete_scope(txn, name, now))
            return

        def next_page(txn: Writing, now: Micros, last: Mapping[str, Any] | None) -> Result:
            count, over = delete_page(txn, name, now)
            return {"count": count, "over": over}

        done, total = 0, self._count(name, progress, internal=True)
        for page in self._pages(f"delete scope {name} and all it holds", request, next_page):
            done += page["count"]
            progress("deleting", done, max(done, total))
        self._companions.sweep()

    def rename(self, scope: str, to: str, *, request: str | None = None) -> Scope:
        """Rename a scope, and with it its streams and aliases; readers and writers continue.

        It is one transaction: about 0.1 ms a stream on SQLite, where appends wait for it too, and 1 ms on PostgreSQL,
        where other changes wait. Errors for former names carry the new ones: StreamRenamed for streams, ScopeRenamed
        for the scope. A pipeline that names streams of the scope must be edited. Raises ScopeNotFound, ScopeExists,
        InvalidName.
        """
        check_scope(to)
        moved = self._changes.apply(
            f"move scope {scope} {to}", request, lambda txn, now: scope_to_json(move_scope(txn, scope, to, now))
        )
        return scope_from_json(moved)

    def copy(
        self,
        source: str,
        target: str,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> builtins.list[CopyResult]:
        """Copy the streams of a scope into another, which is created with the same tags if it does not exist.

        The store's internal streams are copied only with `internal`, ephemeral ones only with `ephemeral`: their copies
        are permanent. Aliases within the scope of its streams are copied too, as aliases of the copies. 64 streams
        (`limits.SCOPE_PAGE`) are copied per transaction, each entirely or not at all. If the call was interrupted, or
        refused because a name is taken, a repeated call continues: what was copied stays as it is. `progress` counts
        streams. Raises StreamExists.
        """
        check_scope(target)

        def next_page(txn: Writing, now: Micros, last: Mapping[str, Any] | None) -> Result:
            if last is None:
                prepare_scope(txn, source, target, now)
            after = None if last is None else StreamName.parse(last["after"])
            options = {"internal": internal, "ephemeral": ephemeral}
            found, end = copy_page(txn, source, target, now, after=after, new_id=self._changes.new_id, **options)
            over = {"over": end is None, "after": None if end is None else str(end)}
            return {"copies": [each.to_json() for each in found], **over}

        operation = f"copy scope {source} {target}{arguments_text(internal=internal, ephemeral=ephemeral)}"
        copies: list[CopyResult] = []
        total = self._count(source, progress, internal=internal)
        for page in self._pages(operation, request, next_page):
            copies += [CopyResult.from_json(each) for each in page["copies"]]
            progress("copying", len(copies), len(copies) if page["over"] else max(total, len(copies)))
        return copies

    def get(self, name: str) -> Scope:
        """One scope."""
        with self._catalog.reading() as txn:
            return need_scope(txn, name)

    def list(self, *, tag: Tags | None = None, pattern: str | None = None) -> builtins.list[Scope]:
        """The scopes by name: all, or those that `tag` and `pattern` select; see `Streams.list`. Raises
        InvalidArgument."""
        selected = ListFilter(tag=tag, pattern=pattern)
        with self._catalog.reading() as txn:
            return [scope for scope in txn.scopes() if selected(scope.name, scope.tags)]

    def _pages(
        self,
        operation: str,
        request: str | None,
        next_page: Callable[[Writing, Micros, Mapping[str, Any] | None], Result],
    ) -> Iterator[Mapping[str, Any]]:
        """Run a change in several transactions, each with its own request id, until one says that it is `over`. When
        repeated, the transactions that were committed return their recorded results, and the rest follows."""
        check_request(request)
        last: Mapping[str, Any] | None = None
        number = 0
        while last is None or not last["over"]:

            def change(txn: Writing, now: Micros, last: Mapping[str, Any] | None = last) -> Result:
                return next_page(txn, now, last)

            last = self._changes.apply_internal(operation, page_request(request, number), change)
            yield last
            number += 1

    def _count(self, scope: str, progress: ProgressCallback, *, internal: bool) -> int:
        """The number of streams in the scope now; 0 if `progress` is `no_progress`."""
        if progress is no_progress:
            return 0
        with self._catalog.reading() as txn:
            return sum(internal or not info.name.internal for info in streams_in(txn, scope))
