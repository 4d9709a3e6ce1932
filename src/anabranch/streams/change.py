"""Runs a change of the catalog in one transaction, once for each request id."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.catalog.port import Catalog, Writing
from anabranch.core.display import Displayed
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import UNCERTAIN
from anabranch.streams.requests import Result, check_request, run_once

Change = Callable[[Writing, Micros], Result | None]  # None is an empty result


class Changes(Displayed):
    """Runs changes of the catalog for all features of a store. Each is durable when its call returns.

    With `retry_uncertain`, a change without a request id gets one, and each change is retried while its outcome is
    unknown, with at most `limits.REQUEST_TRIES_MAX` attempts; each attempt waits for a server that is unavailable.
    Without it, a change of unknown outcome raises AppendUncertain, and the caller, who knows the request id, retries.
    `notify` is called after each change.
    """

    def __init__(self, catalog: Catalog, runtime: Runtime, notify: Callable[[], None]) -> None:
        self.catalog = catalog
        self.runtime = runtime
        self.notify = notify
        self.retry_uncertain = False

    def apply(
        self,
        operation: str,
        request: str | None,
        change: Change,
        *,
        on: StreamName | StreamId | None = None,
        retry: bool = False,
    ) -> Result:
        """Run `change` in one transaction, once for a request id. `on`: the one stream that `change` accesses; see
        `Catalog.writing`. `retry`: see `retry_uncertain`. Raises InvalidArgument for an invalid request id."""
        return self.apply_internal(operation, check_request(request), change, on=on, retry=retry)

    def apply_internal(
        self,
        operation: str,
        request: str | None,
        change: Change,
        *,
        on: StreamName | StreamId | None = None,
        retry: bool = False,
    ) -> Result:
        """Like `apply`, with a request id that the store generated."""
        retry = retry or self.retry_uncertain
        if retry and request is None:
            request = token(self.runtime.ids)

        def apply_once() -> Result:
            now = self.runtime.clock.now()
            with self.catalog.writing(on) as txn:
                return run_once(txn, request, operation, now, lambda: change(txn, now) or {})

        result = UNCERTAIN.call(self.runtime, apply_once) if retry else apply_once()
        self.notify()
        return result

    def new_id(self) -> StreamId:
        """A new, unique stream id."""
        return StreamId(self.runtime.ids.bits(63))
