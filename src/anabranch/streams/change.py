"""What every part of the stream manager rests on: a change in one transaction, once for a request id."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.catalog.port import Catalog, Writing
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.streams.requests import Result, once


class Changes:
    """Runs changes of the catalog. Each is durable when its call returns."""

    _catalog: Catalog
    _runtime: Runtime
    _changed: Callable[[], None]

    def _change(
        self,
        operation: str,
        request: str | None,
        act: Callable[[Writing, Micros], Result],
        *,
        on: StreamName | None = None,
    ) -> Result:
        """Act in one transaction, once for a request id. `on`: the one stream that `act` looks at; see
        `Catalog.writing`."""
        now = self._runtime.clock.now()
        with self._catalog.writing(on) as txn:
            result = once(txn, request, operation, now, lambda: act(txn, now))
        self._changed()
        return result

    def _new_id(self) -> StreamId:
        return StreamId(self._runtime.ids.bits(63))
