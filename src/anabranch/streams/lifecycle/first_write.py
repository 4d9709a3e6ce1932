"""Creating a stream for the rows that are about to be written to it, and deleting it if none is written."""

from __future__ import annotations

from contextlib import suppress

from anabranch.catalog.port import Writing
from anabranch.errors import AnabranchError, ScopeNotEmpty
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.streams.change import Changes
from anabranch.streams.directory.scopes import create_scope, delete_scope
from anabranch.streams.lifecycle.create import create_stream, delete_stream
from anabranch.streams.requests import Result


class FirstWrite:
    """A stream created for its first rows; its scope is created in the same transaction if there is none. Raises
    StreamExists."""

    def __init__(self, changes: Changes, name: StreamName, schema: StreamSchema, scaling: Fixed) -> None:
        self._changes = changes
        self._name = name
        self.stream: StreamId = changes.new_id()

        def change(txn: Writing, now: Micros) -> Result:
            new_scope = txn.scope(name.scope) is None
            if new_scope:
                create_scope(txn, name.scope, {}, now)
            create_stream(txn, name, self.stream, schema, scaling, {}, now)
            return {"scope": new_scope}

        self._new_scope = bool(changes.apply_internal(f"create {name} to write", None, change)["scope"])

    def undo(self) -> None:
        """Delete the stream, and the scope that was created with it, unless somebody uses them by now: the stream if it
        holds an event or was changed, the scope if it holds another stream. Raises nothing."""

        def change(txn: Writing, now: Micros) -> None:
            view = txn.view(self.stream)
            if view is None or view.info.version > 1 or any(view.length(each.id) for each in view.current):
                return
            delete_stream(txn, self.stream, now)
            if self._new_scope:
                with suppress(ScopeNotEmpty):
                    delete_scope(txn, self._name.scope, now)

        with suppress(AnabranchError):
            self._changes.apply_internal(f"undo {self._name}", None, change)
