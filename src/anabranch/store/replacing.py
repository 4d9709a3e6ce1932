"""Replacing a time range of a stream, and counting the events on the wrong side of a cut, as methods of a store's
streams."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any, TypeGuard

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core import cuts
from anabranch.core.checksum import checksum
from anabranch.core.python_rows import to_table
from anabranch.errors import InvalidArgument, LeaseExpired, StreamNotFound
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.read import LogReader
from anabranch.log.time_scan import TimeScan
from anabranch.model.cut import parse_cut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.misplaced import Misplaced
from anabranch.model.names import StreamName
from anabranch.model.replaced import Replaced
from anabranch.model.stream import StreamInfo
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind
from anabranch.model.times import to_micros
from anabranch.runtime.ids import token
from anabranch.streams.algebra.cuts import CountMisplaced, Cut
from anabranch.streams.algebra.replace import reject_replacement
from anabranch.streams.algebra.replacement import RewriteNeeded, replace_at_once
from anabranch.streams.arguments import StreamKey, request_label, stream_key, time_range
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.manager import Source, Streams
from anabranch.streams.requests import check_request
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.replace_range import NOTHING, ReplacementEnded, open_replacement, replacement_options

Time = datetime | int | str


class ReplacingStreams(Streams):
    """Operations on the streams of a store by event or append time. Raises StreamNotFound for unknown names."""

    def __init__(
        self,
        changes: Changes,
        companions: Companions,
        ephemeral: Ephemeral,
        count_misplaced: CountMisplaced,
        own: Any,
    ) -> None:
        super().__init__(changes, companions)
        self._ephemeral = ephemeral
        self._count_misplaced = count_misplaced
        self._own = own

    def replace(
        self,
        stream: StreamKey,
        *,
        between: tuple[Time, Time],
        with_: Source | Any | None,
        by: str = "event",
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        started: Callable[[Job], object] | None = None,
        request: str | None = None,
    ) -> Replaced:
        """Atomically replace exactly the events with `between[0] <= time < between[1]`, in whatever order they lie, by
        `with_`. Times are event times, or with `by="append"` append times; an event without a time stays.

        `with_` is a stream, a `StreamRange`, anything with `__arrow_c_stream__` and the stream's columns, or None,
        which only removes events. All of `with_` is inserted, whatever its times. In each segment it is inserted before
        the first removed event; if none is removed, before the first event that is not earlier than the range.
        Remaining events keep their order.

        Where events are in time order, only the catalog is changed. Otherwise a job (`Store.jobs`) stores the remaining
        events that lie scattered between removed ones again, and this call waits for it; `started` is called with it
        before. The job takes `with_` as it was when the job was created. It survives interruptions and can be resumed,
        also by the same call. Raises JobStopped if it is paused or cancelled.

        The stream keeps its id, names, policies and keys; its writers continue without a restart. Its events move to
        other segments: the result says which (`Replaced.pointers`), and old pointers and cuts raise Truncated. Nothing
        is visible before it is done. Raises InvalidArgument for a byte stream; SchemaMismatch, InvalidCut, Truncated.
        """
        job = self._replace(stream, between, with_, by, window, progress, request)
        if isinstance(job, Replaced):
            return job
        if started is not None:
            started(job)
        replaced: Replaced = job.wait()
        return replaced

    def _replace(
        self,
        stream: StreamKey,
        between: tuple[Time, Time],
        with_: Source | Any | None,
        by: str,
        window: int,
        progress: ProgressCallback,
        request: str | None,
    ) -> Replaced | Job:
        low, high = time_range(between, self._runtime.settings.times)
        time_kind(by)
        check_request(request)
        full, source, data, source_text = stream_key(stream), None, None, NOTHING
        if isinstance(with_, str | StreamName | StreamRange) or _is_id(with_):
            source = StreamRange.of(with_)
            source_text = str(source)
        elif with_ is not None:
            data = to_table(with_)
            source_text = _digest(data)
        operation = f"replace {low}..{high} by {by} in {request_label(full)} with {source_text}"

        def job(source: StreamRange | None) -> Job:
            begun: Job = self._own.jobs.replace(
                full,
                between=(low, high),
                with_=source,
                by=by,
                asked=source_text,
                window=window,
                progress=progress,
                request=request,
            )
            return begun

        recorded = self._recorded(request)
        if recorded == f"job {operation}":
            return job(source)
        if recorded is not None:
            return Replaced.from_json(self._changes.apply(operation, request, _never))
        info = self.get(full)
        reject_replacement(info)
        _timed(info, by)
        if self._begun(info, source_text, low, high, by):
            with suppress(ReplacementEnded):  # ended since: this is another replacement
                return job(source)
        with ExitStack() as stack:
            drop: tuple[StreamId, ...] = ()
            if data is not None:
                held = stack.enter_context(self._held_like(info))
                with self._own.writer(held.name) as writer:
                    writer.write_batch(data).result()
                source, drop = StreamRange(held.id), (held.id,)
            job_store = self._own.job_store
            logs = LogReader(job_store.catalog, job_store.blobs, job_store.runtime)
            scan = TimeScan(logs, low, high, by_event_time=by == "event")
            ident = request or token(self._runtime.ids)  # so that a lost answer does not lose the work done so far

            def change(act: Callable[[Writing, Micros], dict[str, Any]]) -> dict[str, Any]:
                return self._changes.apply(operation, ident, act, retry=True)

            try:
                return replace_at_once(
                    job_store.catalog, job_store.runtime, info.id, scan, source, change, drop=drop, progress=progress
                )
            except RewriteNeeded:
                return job(source)
            except StreamNotFound as exc:
                if any(exc.stream == f"{each:016x}" for each in drop):
                    why = "another process considered the replacement abandoned, because this process was stopped for too long; repeat it"
                    raise LeaseExpired(why) from exc
                raise

    def misplaced(
        self,
        stream: StreamKey,
        time: Time,
        *,
        by: str = "event",
        cut: Cut | None = None,
    ) -> Misplaced:
        """Count the events on the wrong side of the cut at a time, or of another `cut`. If there are none, the cut
        splits the stream as a filter by that time would. Reads only times, and only where the catalog does not have
        them."""
        at = to_micros(time, self._runtime.settings.times)
        time_kind(by)
        view = self.view(stream)
        _timed(view.info, by)
        place = None if cut is None else cuts.resolve(view, parse_cut(cut))
        return self._count_misplaced(view, at, place, by == "event")

    def _recorded(self, request: str | None) -> str | None:
        """The operation that this request was."""
        if request is None:
            return None
        with self._catalog.reading() as reading:
            known = reading.request(request)
        return None if known is None else known[0]

    def _begun(self, info: StreamInfo, source_text: str, low: Micros, high: Micros, by: str) -> bool:
        """True if a job that has not ended does this replacement."""
        with self._catalog.reading() as reading:
            return open_replacement(reading, info.id, source_text, replacement_options(low, high, by)) is not None

    def _held_like(self, info: StreamInfo) -> Any:
        schema = info.schema
        if schema.raw:
            return self._ephemeral.create()
        return self._ephemeral.create(schema=schema.columns, key=schema.key, time=schema.time)


def _never(txn: Writing, now: Micros) -> dict[str, Any]:
    raise AssertionError("the request was recorded")


def _timed(info: StreamInfo, by: str) -> None:
    if by == "event" and info.schema.time is None:
        raise InvalidArgument(f"'{info.name}' has no event time; use the append time: by='append'")


def _digest(table: Any) -> str:
    """A digest of the data for the request, so that the same id with other data is noticed."""
    total = checksum(table.schema.serialize())
    for batch in table.to_batches():
        total = total * 31 + checksum(batch.serialize())
    return f"{table.num_rows} rows {total & ((1 << 64) - 1):016x}"


def _is_id(given: Any) -> TypeGuard[StreamId]:
    return isinstance(given, int) and not isinstance(given, bool)
