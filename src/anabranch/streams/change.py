"""What every part of the stream manager rests on: a change in one transaction, once for a request id."""

from __future__ import annotations

from collections.abc import Callable

from anabranch import limits
from anabranch.catalog.port import Catalog, Writing
from anabranch.errors import AppendUncertain
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.streams.requests import Result, check_request, once


class Changes:
    """Runs changes of the catalog. Each is durable when its call returns.

    `insistent`: a change that comes without a request id gets one, and is asked for again where its answer was lost, at
    most `limits.REQUEST_TRIES_MAX` times; a server that is away is waited out by each. Else AppendUncertain is raised, and
    the caller, who knows the request id, asks again.
    """

    insistent: bool = False
    _catalog: Catalog
    _runtime: Runtime
    _changed: Callable[[], None]

    def _change(
        self,
        operation: str,
        request: str | None,
        act: Callable[[Writing, Micros], Result],
        *,
        on: StreamName | StreamId | None = None,
        insist: bool = False,
    ) -> Result:
        """Act in one transaction, once for a request id. `on`: the one stream that `act` looks at; see
        `Catalog.writing`. `insist`: see `insistent`. Raises InvalidArgument for a request id that can be none."""
        return self._asked(operation, check_request(request), act, on=on, insist=insist)

    def _asked(
        self,
        operation: str,
        request: str | None,
        act: Callable[[Writing, Micros], Result],
        *,
        on: StreamName | StreamId | None = None,
        insist: bool = False,
    ) -> Result:
        """The same with a request id of the store's own making."""
        insist = insist or self.insistent
        if insist and request is None:
            request = token(self._runtime.ids)
        tries = limits.REQUEST_TRIES_MAX if insist else 1
        while True:
            now = self._runtime.clock.now()
            try:
                with self._catalog.writing(on) as txn:
                    result = once(txn, request, operation, now, lambda: act(txn, now))  # noqa: B023 - called at once
            except AppendUncertain:
                tries -= 1
                if not tries:
                    raise
            else:
                self._changed()
                return result

    def _new_id(self) -> StreamId:
        return StreamId(self._runtime.ids.bits(63))
