"""The jobs of a store: those that write to it, or archive its streams."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.core.display import Displayed
from anabranch.errors import Closed, InvalidArgument
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind
from anabranch.streams.arguments import StreamKey, request_label, stream_key, time_range
from anabranch.streams.requests import check_request, run_once
from anabranch.transfer.filters.event_filter import EventFilter
from anabranch.transfer.jobs.archive_jobs import ArchiveJobs
from anabranch.transfer.jobs.context import JobOptions
from anabranch.transfer.jobs.copy_scope import look_at_scope, make_scope_job
from anabranch.transfer.jobs.copy_where import make_filtered_copy
from anabranch.transfer.jobs.create import make_job, require_open_end, take_snapshot
from anabranch.transfer.jobs.deduplicate_remote import DeduplicatingCarrier
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.job_store import JobStore, ProvidesJobStore
from anabranch.transfer.jobs.record import JobRow, all_jobs, drop_job, drop_old_jobs, need_job, put_job
from anabranch.transfer.jobs.remote_tasks import Carrier
from anabranch.transfer.jobs.replace_range import NOTHING, make_replacement, replacement_options
from anabranch.transfer.jobs.run import JobRun
from anabranch.transfer.jobs.sources import InStore, Source, check_several, given, placed, places_of

Name = str | StreamName
Time = datetime | int | str
Open = Callable[[Mapping[str, str]], ProvidesJobStore]


class Jobs(ArchiveJobs, Displayed):
    """Creates jobs, finds them, and runs them. `open_job_store` opens the source of a job that is resumed without one;
    `changed` is called when a stream was created."""

    def __init__(self, job_store: JobStore, *, open_job_store: Open, changed: Callable[[], None]) -> None:
        self._job_store = job_store
        self._open_site = open_job_store
        self._changed = changed
        self._running: dict[str, Job] = {}
        self._closed = False

    # creating

    def copy(
        self,
        source: ProvidesJobStore,
        stream: Source,
        target: Name,
        *,
        follow: Until | bool = False,
        independent: bool = True,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Copy a stream of another store, or a stream range, as a new stream of this one: same columns, tags, epochs,
        segments, offsets and append times. Calling again with the same arguments changes nothing.

        A `carrier` moves the bytes in other processes, as `anabranch.spark.transfer_jobs` does on Spark.

        With `follow` the copy is kept up to date, also when the source is scaled, until that condition is met; True
        means until the job is paused or the source is sealed. Nothing else may write to the copy meanwhile. Within one
        store, a copy that follows and is not `independent` shares the bytes that exist when it begins. Raises
        StreamNotFound, ScopeNotFound, StreamExists, InvalidCut, Truncated.
        """
        options: dict[str, Any] = {}
        if follow is not False:
            require_open_end(StreamRange.of(stream))
            options["follow"] = _until(follow).to_json()
        within = source.job_store.catalog is self._job_store.catalog
        if within:
            options["independent" if independent else "shared"] = True
        return self._begin("copy", source, [stream], target, options, JobOptions(request, window, carrier, progress))

    def append(
        self,
        source: ProvidesJobStore,
        stream: Source,
        onto: Name,
        *,
        deduplicate: Sequence[str] = (),
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Append the events of another store's stream after the last event of `onto`, once they have all been moved.

        With `deduplicate`, leaves out events that equal, in all these columns, an event that `onto` held when the job
        was created or an earlier one of their own stream. `JobRow.repeats` counts them; offsets then begin at 0. Raises
        as `copy`, SchemaMismatch, InvalidArgument; Truncated if `onto` was truncated before the comparison was done.
        """
        options = _deduplicate_options(deduplicate, carrier)
        return self._begin("append", source, [stream], onto, options, JobOptions(request, window, carrier, progress))

    def stitch(
        self,
        source: ProvidesJobStore,
        streams: Sequence[Source | InStore],
        into: Name,
        *,
        keep_sources: bool = True,
        deduplicate: Sequence[str] = (),
        prefer: Sequence[int] = (),
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Create a stream of all events of the first stream of another store, then all of the second, and so on.
        Sources in further stores, or in this one, are given as `InStore`.

        With `deduplicate`, keeps only one of several events that are equal in all these columns: that of the first
        stream, or of the stream that comes first in `prefer`, a list of numbers of streams from 0 on; within a stream
        the first. The streams in `prefer` are read first. `JobRow.repeats` counts the events left out. Offsets then
        differ from those of the sources. The events of all streams are digested first, 24 bytes each, on disk.

        Without `keep_sources` the streams are deleted once the new one is in place and durable, all of a store
        together. Until then the job is not done, and a resumed run does it. If one holds events written since the job
        was created, none is deleted, and the job fails with Conflict. Raises as `copy`, SchemaMismatch,
        InvalidArgument.
        """
        check_several(streams)
        if not streams:
            raise InvalidArgument("expected at least one stream to stitch")
        _check_preferred(prefer, len(streams))
        options = _deduplicate_options(deduplicate, carrier)
        if prefer:
            options["prefer"] = list(prefer)
        if not keep_sources:
            options["drop"] = True
        return self._begin("stitch", source, streams, into, options, JobOptions(request, window, carrier, progress))

    def copy_scope(
        self,
        source: ProvidesJobStore,
        scope: str,
        target: str,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Copy the streams of a scope of another store into one of this store, with their aliases in that scope. One
        job copies all streams, sharing its window. Each copy appears whole, as of when its turn came. Names that are
        taken are refused before anything is moved. Raises ScopeNotFound, StreamExists, InvalidName."""
        self._alive()
        job_store = source.job_store
        folder = look_at_scope(job_store, scope, internal=internal, ephemeral=ephemeral)
        within = {"within": True, "independent": True} if job_store.catalog is self._job_store.catalog else {}
        options = {"internal": internal, "ephemeral": ephemeral, **within}

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_scope_job(txn, ident, folder, target, place=job_store.place, options=options, now=now)

        said = "".join(f" {name}" for name in ("internal", "ephemeral") if options[name])
        operation = f"job copy scope {scope} {target}{said}"
        return self._write_down(operation, act, [job_store], JobOptions(request, window, carrier, progress))

    def replace(
        self,
        stream: StreamKey,
        *,
        between: tuple[Time, Time],
        with_: Source | StreamId | None,
        by: str = "event",
        asked: str | None = None,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Replace the events of a time range of a stream of this store, as `StoreStreams.replace` does, with those of
        another stream as it is now. Kept events that lie scattered between removed ones are stored again,
        in portions that a resumed job uses; then one transaction replaces.

        Appends, truncations and other replacements of the stream meanwhile are taken into account; if it is deleted,
        the job fails with StreamNotFound. Calling again before the job has ended returns the same job. A repeated call
        is recognized by `asked`, which identifies `with_`; by default it is the name of `with_`. A call with `asked`
        but without `with_` only finds an unfinished job, and raises Conflict if there is none. Raises StreamNotFound,
        SchemaMismatch, InvalidArgument, InvalidCut, Truncated.
        """
        self._alive()
        full, source = stream_key(stream), None if with_ is None else StreamRange.of(with_)
        low, high = time_range(between, self._job_store.runtime.settings.times)
        source_text = asked or (NOTHING if source is None else str(source))
        stages = (StreamId(self._job_store.runtime.ids.bits(63)), StreamId(self._job_store.runtime.ids.bits(63)))
        options = replacement_options(low, high, time_kind(by))

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_replacement(
                txn, ident, full, source, asked=source_text, options=options, stages=stages, now=now
            )

        operation = f"job replace {low}..{high} by {by} in {request_label(full)} with {source_text}"
        return self._write_down(operation, act, [self._job_store], JobOptions(request, window, None, progress))

    def copy_where(
        self,
        stream: Source,
        target: Name,
        where: str,
        *,
        asked: str | None = None,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Copy the events of a stream of this store, or a stream range, for which the condition is true, as
        `StoreStreams.copy` does with `where`. Takes the source as it is when the job is created. Only events that lie
        scattered are stored again, in portions; a resumed job continues with the remaining portions. Calling again with
        the same arguments changes nothing; a repeated request is recognized by `asked`, by default the condition.
        Raises InvalidSql, MissingExtra, InvalidArgument for a byte stream, StreamNotFound, ScopeNotFound, StreamExists,
        InvalidCut, Truncated."""
        self._alive()
        full, source = StreamName.parse(target), StreamRange.of(stream)
        stages = (StreamId(self._job_store.runtime.ids.bits(63)), StreamId(self._job_store.runtime.ids.bits(63)))
        snapshot = None if self._is_done(request) else take_snapshot(self._job_store, source)
        if snapshot is not None:
            EventFilter(where, snapshot.stream_slice.view.info.schema)  # refuses it now rather than when it runs

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            assert snapshot is not None, "the request was not recorded"
            return make_filtered_copy(txn, ident, snapshot, full, where.strip(), stages=stages, now=now)

        operation = f"job copy {source} {full} where {where if asked is None else asked}"
        return self._write_down(operation, act, [self._job_store], JobOptions(request, window, None, progress))

    def _begin(
        self,
        verb: str,
        source: ProvidesJobStore,
        streams: Sequence[Source | InStore],
        target: Name,
        options: Mapping[str, Any],
        run_options: JobOptions,
    ) -> Job:
        self._alive()
        full = StreamName.parse(target)
        sites, parts = placed(source.job_store, streams)
        # A repeated request returns its job, even if the sources have been deleted since.
        snapshots = (
            [] if self._is_done(run_options.request) else [take_snapshot(sites[each.store], *each) for each in parts]
        )
        places = places_of(sites, self._job_store)
        within = {"within": True} if places == [{}] else {}
        chosen: dict[str, Any] = {**options, **within}
        stages = [StreamId(self._job_store.runtime.ids.bits(63)) for _ in snapshots]

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_job(txn, ident, verb, full, snapshots, stages, places=places, options=chosen, now=now)

        for name in chosen.get("deduplicate", ()) if snapshots else ():
            if not any(name in each.stream_slice.view.info.schema.columns.names for each in snapshots):
                raise InvalidArgument(f"deduplicate= names columns of the streams; none of them has '{name}'")
        said = "".join(_option_text(name, value) for name, value in chosen.items() if name != "within")
        named = ",".join(f"{each.store}:{each.part}" if each.store else str(each.part) for each in parts)
        operation = f"job {verb} {named} {full}{said}"
        return self._write_down(operation, act, sites, run_options)

    def _is_done(self, request: str | None) -> bool:
        check_request(request)
        with self._job_store.catalog.reading() as reading:
            return request is not None and reading.request(request) is not None

    def _write_down(
        self,
        operation: str,
        act: Callable[[Writing, str, Micros], JobRow],
        sites: Sequence[JobStore],
        run_options: JobOptions,
    ) -> Job:
        check_request(run_options.request)
        now = self._job_store.runtime.clock.now()
        ident = f"{self._job_store.runtime.ids.bits(48):012x}"
        with self._job_store.catalog.writing() as txn:
            result = run_once(txn, run_options.request, operation, now, lambda: {"job": act(txn, ident, now).id})
            drop_old_jobs(txn, now)
        return self._start(str(result["job"]), sites, run_options)

    # finding

    def list(self) -> builtins.list[JobRow]:
        """All jobs, newest last."""
        with self._job_store.catalog.reading() as txn:
            rows = all_jobs(txn)
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def get(self, job: str) -> Job:
        """One job. Raises JobNotFound."""
        if (here := self._running.get(job)) is not None:
            return here
        found = Job(self._job_store, job)
        found.row()
        return found

    def forget(self, job: str) -> None:
        """Delete the row of a job that has ended. Raises JobNotFound, InvalidArgument for one that has not ended."""
        with self._job_store.catalog.writing() as txn:
            row = need_job(txn, job)
            if not row.state.ended:
                raise InvalidArgument(f"job {job} is {row.state.value}: cancel it first")
            drop_job(txn, job)

    def resume(
        self,
        job: str,
        *,
        source: ProvidesJobStore | Sequence[ProvidesJobStore] | None = None,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        take_over: bool = False,
    ) -> Job:
        """Resume a job that was paused, has failed, or whose process is gone. `source` is the store it reads, or all
        other stores it reads in the order of `JobRow.places`; by default they are opened at their recorded places.
        Raises JobNotFound, JobRunning; JobUnconfirmed in a restored store (see `confirm`); what opening a store
        raises."""
        self._alive()
        row = Job(self._job_store, job).row()
        row.refuse_unconfirmed()
        places = row.places
        if source is None:
            sites = [self._open_site(place).job_store if place else self._job_store for place in places]
        else:
            sites = given(places, self._job_store, source if isinstance(source, Sequence) else [source])
        return self._start(job, sites, JobOptions(None, window, carrier, progress), take_over=take_over)

    def confirm(self, job: str) -> None:
        """Allow a job of a store that was restored or rebuilt to contact the places that it names. Raises
        JobNotFound."""
        self._alive()
        with self._job_store.catalog.writing() as txn:
            put_job(txn, replace(need_job(txn, job), restored=False))

    def _start(self, ident: str, sites: Sequence[JobStore], run_options: JobOptions, *, take_over: bool = False) -> Job:
        here = self._running.get(ident)
        if here is not None and here.alive:
            return here
        job = Job(self._job_store, ident)
        run = JobRun(sites, self._job_store, ident, run_options, changed=self._changed)
        self._running[ident] = job
        try:
            job.start(run, take_over=take_over, ended=lambda: self._untrack(job))
        except BaseException:
            self._untrack(job)
            raise
        return job

    def _untrack(self, job: Job) -> None:
        """Stop tracking a job that ended here; its handle can still return the result."""
        if self._running.get(job.id) is job:
            del self._running[job.id]

    # closing

    def close(self) -> None:
        """Pause the jobs that run here. A second call does nothing."""
        self._closed = True
        for job in tuple(self._running.values()):
            job.stop()

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")


def _until(follow: Until | bool) -> Until:
    if not isinstance(follow, Until | bool):
        raise InvalidArgument(f"expected follow= as True, False or an Until, got {follow!r:.100}")
    return follow if isinstance(follow, Until) else Until()


def _check_preferred(prefer: Sequence[int], streams: int) -> None:
    numbers = range(streams)
    if (
        not isinstance(prefer, Collection)
        or not all(type(each) is int and each in numbers for each in prefer)
        or len(set(prefer)) < len(prefer)
    ):
        raise InvalidArgument(
            f"expected prefer= as a list of numbers of streams from 0 to {streams - 1}, each once, got {prefer!r:.100}"
        )


def _deduplicate_options(columns: Sequence[str], carrier: Carrier | None) -> dict[str, Any]:
    """The deduplication columns, as a job's options. Raises InvalidArgument for a carrier that can't find repeats, and
    for a string, whose letters would each count as a column."""
    if isinstance(columns, str):
        raise InvalidArgument(f"deduplicate= takes a list of columns: ['{columns}']")
    if not isinstance(columns, Collection):
        raise InvalidArgument(f"deduplicate= takes a list of columns, got {columns!r:.100}")
    if columns and carrier is not None and not isinstance(carrier, DeduplicatingCarrier):
        raise InvalidArgument(
            "this carrier copies bytes and can't find repeats; give deduplicate= or carrier=, not both"
        )
    return {"deduplicate": list(columns)} if columns else {}


def _option_text(name: str, value: object) -> str:
    """An option in the text of a request."""
    return f" {name}" if value is True else f" {name}={json.dumps(value, sort_keys=True)}"
