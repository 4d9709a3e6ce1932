"""Copies by a filter, and replacements of a time range: made at once where only the catalog changes, else by a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any, TypeGuard

from anabranch.catalog.port import Writing
from anabranch.core.checksum import checksum
from anabranch.core.copy import CopyResult
from anabranch.core.python_rows import to_table
from anabranch.core.routing import key_text
from anabranch.errors import InvalidArgument, LeaseExpired, StreamNotFound
from anabranch.log.progress import ProgressCallback
from anabranch.log.read import LogReader
from anabranch.log.time_scan import ReadNeeded, TimeScan
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.replaced import Replaced
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind
from anabranch.runtime.ids import token
from anabranch.streams.algebra.copy import copy_arguments
from anabranch.streams.algebra.replace import reject_replacement
from anabranch.streams.algebra.replacement import RewriteNeeded, replace_at_once
from anabranch.streams.arguments import StreamKey, request_label, stream_key, time_range
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, range_stream
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.manager import Source
from anabranch.streams.requests import Result, check_request
from anabranch.transfer.filters.at_once import copy_at_once
from anabranch.transfer.filters.event_filter import EventFilter, both_conditions
from anabranch.transfer.jobs.create import unfinished_copy
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.manager import Jobs
from anabranch.transfer.jobs.record import COPY_WHERE
from anabranch.transfer.jobs.replace_range import NOTHING, ReplacementEnded, open_replacement, replacement_options
from anabranch.writing.writer import Writer

Time = datetime | int | str


class AtOnce:
    """Starts filtered copies and replacements of a store; `jobs` are the store's jobs."""

    def __init__(self, jobs: Jobs, job_store: JobStore, changes: Changes) -> None:
        self._jobs = jobs
        self._changes = changes
        self._catalog = job_store.catalog
        self._logs = LogReader(job_store.catalog, job_store.blobs, job_store.runtime)

    def copy(
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
        label = _filter_label(where, keys)
        call = _AtOnceCall(self._changes, f"copy {source} {target} where {label}", request)

        def job(condition: str) -> Job:
            return self._jobs.copy_where(
                source, target, condition, asked=label, window=window, progress=progress, request=request
            )

        if call.made_job:
            return job("")  # the job has stored its condition
        if call.was_made:
            return CopyResult.from_json(call.recorded_result())
        with self._catalog.reading() as reading:
            info = need_info(reading, range_stream(source), suggest=True)
            condition = both_conditions(where, keys, info.schema)
            begun = unfinished_copy(reading, COPY_WHERE, info.id, target, copy_arguments(source, where=condition))
        event_filter = EventFilter(condition, info.schema)
        if begun is not None:
            return job(condition)
        runtime, stream = self._changes.runtime, self._changes.new_id()
        try:
            return copy_at_once(self._logs, runtime, source, target, event_filter, stream, call.change)
        except (ReadNeeded, RewriteNeeded):
            return job(condition)

    def replace(
        self,
        stream: StreamKey,
        between: tuple[Time, Time],
        with_: Source | Any | None,
        by: str,
        *,
        ephemeral: Ephemeral,
        open_writer: Callable[[StreamName], Writer],
        window: int,
        progress: ProgressCallback,
        request: str | None,
    ) -> Replaced | Job:
        """Replace the events at once, or begin or find the job that does it. Raises as `StoreStreams.replace`."""
        low, high = time_range(between, self._changes.runtime.settings.times)
        time_kind(by)
        check_request(request)
        full, source, data, source_text = stream_key(stream), None, None, NOTHING
        if isinstance(with_, str | StreamName | StreamRange) or _is_id(with_):
            source = StreamRange.of(with_)
            source_text = str(source)
        elif with_ is not None:
            data = to_table(with_)
            source_text = _data_digest(data)
        operation = f"replace {low}..{high} by {by} in {request_label(full)} with {source_text}"
        call = _AtOnceCall(self._changes, operation, request)

        def job(source: StreamRange | None) -> Job:
            return self._jobs.replace(
                full,
                between=(low, high),
                with_=source,
                by=by,
                asked=source_text,
                window=window,
                progress=progress,
                request=request,
            )

        if call.made_job:
            return job(source)
        if call.was_made:
            return Replaced.from_json(call.recorded_result())
        with self._catalog.reading() as reading:
            info = need_info(reading, full, suggest=True)
            begun = open_replacement(reading, info.id, source_text, replacement_options(low, high, by))
        reject_replacement(info)
        check_timed(info, by)
        if begun is not None:
            with suppress(ReplacementEnded):  # the earlier job has ended: this is another replacement
                return job(source)
        with ExitStack() as stack:
            drop: tuple[StreamId, ...] = ()
            if data is not None:
                schema = info.schema
                kind = {} if schema.raw else {"schema": schema.columns, "key": schema.key, "time": schema.time}
                held = stack.enter_context(ephemeral.create(**kind))
                with open_writer(held.name) as writer:
                    writer.write_batch(data).result()
                source, drop = StreamRange(held.id), (held.id,)
            scan = TimeScan(self._logs, low, high, by_event_time=by == "event")
            runtime = self._changes.runtime
            try:
                return replace_at_once(
                    self._catalog, runtime, info.id, scan, source, call.change, drop=drop, progress=progress
                )
            except RewriteNeeded:
                return job(source)
            except StreamNotFound as exc:
                if any(exc.stream == f"{each:016x}" for each in drop):
                    why = "another process considered the replacement abandoned, because this process was stopped for too long; repeat it"
                    raise LeaseExpired(why) from exc
                raise


class _AtOnceCall:
    """A call under its request id, or a generated one, so that a lost answer does not lose the work done so far.
    `was_made`: the request id was used before; `made_job`: the same call made a job under it."""

    def __init__(self, changes: Changes, operation: str, request: str | None) -> None:
        check_request(request)
        self._changes = changes
        self._operation = operation
        self._request = request or token(changes.runtime.ids)
        with changes.catalog.reading() as reading:
            recorded = None if request is None else reading.request(request)
        self.was_made = recorded is not None
        self.made_job = recorded is not None and recorded[0] == f"job {operation}"

    def recorded_result(self) -> Result:
        """The recorded result. Raises RequestMismatch."""

        def never(_txn: Writing, _now: Micros) -> Result:
            raise AssertionError("the request was recorded")

        return self._changes.apply(self._operation, self._request, never)

    def change(self, act: Callable[[Writing, Micros], Result]) -> Result:
        """Run `act` in one transaction, once."""
        return self._changes.apply(self._operation, self._request, act, retry=True)


def check_timed(info: StreamInfo, by: str) -> None:
    """Raises InvalidArgument for event times of a stream that has none."""
    if by == "event" and info.schema.time is None:
        raise InvalidArgument(f"'{info.name}' has no event time; use the append time: by='append'")


def _filter_label(where: str | None, keys: Sequence[Any]) -> str:
    """The filter in the text of a request, which does not depend on the stream."""
    if isinstance(keys, str | bytes | bytearray) or not isinstance(keys, Sequence):
        raise InvalidArgument(f"keys= takes a list of routing keys, got {keys!r:.100}")
    return json.dumps([where, *([key_text(key) for key in keys],) * bool(keys)])


def _data_digest(table: Any) -> str:
    """A digest of the data for the request, so that the same id with other data is noticed."""
    total = checksum(table.schema.serialize())
    for batch in table.to_batches():
        total = total * 31 + checksum(batch.serialize())
    return f"{table.num_rows} rows {total & ((1 << 64) - 1):016x}"


def _is_id(given: Any) -> TypeGuard[StreamId]:
    return isinstance(given, int) and not isinstance(given, bool)
