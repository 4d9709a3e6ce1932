"""Copying a stream by a filter: at once where only the catalog changes, else by a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.catalog.port import Writing
from anabranch.core.copy import CopyResult
from anabranch.core.routing import key_text
from anabranch.errors import InvalidArgument
from anabranch.log.progress import ProgressCallback
from anabranch.log.read import LogReader
from anabranch.log.time_scan import ReadNeeded
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ids import token
from anabranch.streams.algebra.copy import copy_arguments
from anabranch.streams.algebra.replacement import RewriteNeeded
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, range_stream
from anabranch.streams.requests import check_request
from anabranch.transfer.filters.at_once import copy_at_once
from anabranch.transfer.filters.event_filter import EventFilter, both_conditions
from anabranch.transfer.jobs.copy_where import unfinished_copy
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.manager import Jobs


class FilteredCopies:
    """Copies by a filter, of a store with these jobs."""

    def __init__(self, jobs: Jobs, job_store: JobStore, changes: Changes) -> None:
        self._jobs = jobs
        self._changes = changes
        self._catalog = job_store.catalog
        self._logs = LogReader(job_store.catalog, job_store.blobs, job_store.runtime)

    def begin(
        self,
        source: StreamRange,
        target: StreamName,
        where: str | None,
        keys: Sequence[Any],
        *,
        window: int,
        progress: ProgressCallback,
        request: str | None,
    ) -> CopyResult | Job:
        """Copy the matching events at once, or begin or find the job that does it. Raises as `StoreStreams.copy`."""
        check_request(request)
        label = _label(where, keys)
        operation = f"copy {source} {target} where {label}"

        def job(condition: str) -> Job:
            return self._jobs.copy_where(
                source, target, condition, asked=label, window=window, progress=progress, request=request
            )

        with self._catalog.reading() as reading:
            recorded = None if request is None else reading.request(request)
            if recorded is None:
                info = need_info(reading, range_stream(source), suggest=True)
                condition = both_conditions(where, keys, info.schema)
                begun = unfinished_copy(reading, info.id, target, copy_arguments(source, where=condition))
        if recorded is not None:
            if recorded[0] == f"job {operation}":
                return job("")  # it has its own condition
            return CopyResult.from_json(self._changes.apply(operation, request, _never))
        event_filter = EventFilter(condition, info.schema)
        if begun is not None:
            return job(condition)
        ident = request or token(self._changes.runtime.ids)  # so that a lost answer does not lose the copy

        def change(act: Callable[[Writing, Micros], dict[str, Any]]) -> dict[str, Any]:
            return self._changes.apply(operation, ident, act, retry=True)

        try:
            return copy_at_once(
                self._logs, self._changes.runtime, source, target, event_filter, self._changes.new_id(), change
            )
        except (ReadNeeded, RewriteNeeded):
            return job(condition)


def _label(where: str | None, keys: Sequence[Any]) -> str:
    """The filter in the text of a request, which does not depend on the stream."""
    if isinstance(keys, str | bytes | bytearray) or not isinstance(keys, Sequence):
        raise InvalidArgument(f"keys= takes a list of routing keys, got {keys!r:.100}")
    return json.dumps([where, *([key_text(key) for key in keys],) * bool(keys)])


def _never(_txn: Writing, _now: Micros) -> dict[str, Any]:
    raise AssertionError("the request was recorded")
