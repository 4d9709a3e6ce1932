"""The log of a query: an internal stream of the store, so it can be read and followed wherever the query runs."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.deployments.record import log_stream
from anabranch.errors import AnabranchError
from anabranch.model.columns import TIME_TYPE
from anabranch.runtime.log_events import QUERY_NOTED
from anabranch.store import Store
from anabranch.store.engine_api import Retention

__all__ = ["QueryLogs"]

_COLUMNS: Final = pa.schema(
    [
        ("at", TIME_TYPE),
        ("level", pa.string()),
        ("message", pa.string()),
        ("version", pa.int64()),
        ("epoch", pa.int64()),
    ]
)
_KEPT: Final = Retention(size=4 * 1024 * 1024)


class QueryLogs:
    """Writes the logs of a host's queries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[str] = set()

    def note(self, query: str, message: str, *, level: str = "info", version: int, epoch: int) -> None:
        """Add a line, durably. If the store refuses it, the line is lost, and the host goes on."""
        QUERY_NOTED(query=query, note=message)
        at = self._store.runtime.clock.now()
        row = {"at": [at], "level": [level], "message": [message], "version": [version], "epoch": [epoch]}
        try:
            self._ensure(query)
            self._store.write(log_stream(query), pa.table(row, _COLUMNS))
        except AnabranchError:
            self._known.discard(query)

    def delete(self, query: str) -> None:
        """Remove the log of a query."""
        self._known.discard(query)
        if self._store.streams.find(log_stream(query)) is not None:
            self._store.streams.delete(log_stream(query))

    def _ensure(self, query: str) -> None:
        if query not in self._known:
            name = log_stream(query)
            if self._store.streams.find(name) is None:
                self._store.scopes.create(name.scope, exist_ok=True)
                self._store.streams.create(name, schema=_COLUMNS, time="at", retention=_KEPT, exist_ok=True)
            self._known.add(query)
