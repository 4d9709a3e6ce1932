"""The jobs of a store: those that write to it, or archive its streams."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.errors import Closed, InvalidArgument
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.streams.jobs.archives import ArchiveJobs
from anabranch.streams.jobs.begin import draw, make_job, whole
from anabranch.streams.jobs.carry import Carrier
from anabranch.streams.jobs.copy_scope import look_at_scope, make_scope_job
from anabranch.streams.jobs.how import How
from anabranch.streams.jobs.job import Job
from anabranch.streams.jobs.row import JOB, JobRow, need_job
from anabranch.streams.jobs.run import Run
from anabranch.streams.jobs.sift import Sifter
from anabranch.streams.jobs.site import Site, Sited
from anabranch.streams.jobs.sources import InStore, Source, given, placed, places_of
from anabranch.streams.jobs.until import Until
from anabranch.streams.requests import check_request, once

Name = str | StreamName
Open = Callable[[Mapping[str, str]], Sited]


class Jobs(ArchiveJobs):
    """Makes jobs, finds them again, and runs them. `open_site` opens the source of a job that is resumed without one;
    `changed` is called when a stream was made."""

    def __init__(self, site: Site, *, open_site: Open, changed: Callable[[], None]) -> None:
        self._site = site
        self._open_site = open_site
        self._changed = changed
        self._running: dict[str, Job] = {}
        self._closed = False

    # making

    def copy(
        self,
        source: Sited,
        stream: Source,
        target: Name,
        *,
        follow: Until | bool = False,
        independent: bool = True,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Copy a stream of another store, or a range of one, as a new stream of this one: same columns, tags, epochs,
        segments, offsets and append times. Asked again with the same arguments it changes nothing.

        A `carrier` moves the bytes elsewhere, as `anabranch.spark.jobs` does on Spark.

        With `follow` the copy is kept up to date, through scales of the source too, until that is over, for True until
        the job is paused or the source is sealed. Nobody else may write to it meanwhile. Within one store, a copy that
        follows and is not `independent` shares the bytes that are there when it begins. Raises StreamNotFound,
        ScopeNotFound, StreamExists, InvalidCut, Truncated.
        """
        options: dict[str, Any] = {}
        if follow is not False:
            whole(StreamRange.of(stream))
            options["follow"] = (Until() if follow is True else follow).to_json()
        within = source.site.catalog is self._site.catalog
        if within:
            options["independent" if independent else "shared"] = True
        return self._begin("copy", source, [stream], target, options, How(request, window, carrier, progress))

    def append(
        self,
        source: Sited,
        stream: Source,
        onto: Name,
        *,
        deduplicate: Sequence[str] = (),
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Let the events of a stream of another store follow the last event of `onto`, once they have all been moved.

        With `deduplicate`, those are left out that equal in all these columns one that `onto` held when the job was made,
        or an earlier one of their own stream. `JobRow.repeats` counts them; offsets begin at 0 then. Raises as `copy`,
        SchemaMismatch, InvalidArgument; Truncated where `onto` was truncated before the comparison was made.
        """
        options = _left_out(deduplicate, carrier)
        return self._begin("append", source, [stream], onto, options, How(request, window, carrier, progress))

    def stitch(
        self,
        source: Sited,
        streams: Sequence[Source | InStore],
        into: Name,
        *,
        keep_sources: bool = True,
        deduplicate: Sequence[str] = (),
        prefer: Sequence[int] = (),
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """A new stream of all events of the first stream of another store, then all of the second, and so on. Sources that
        live in further stores, or in this one, are given as `InStore`.

        With `deduplicate`, of events that are equal in all these columns only one stays: that of the first stream, or
        of the stream that stands first in `prefer`, a list of numbers of streams, from 0 on; within a stream the first.
        Those streams are read first. `JobRow.repeats` counts what was left out. Offsets are not those of the sources
        then. The events of all streams are digested first, 24 bytes each, on disk.

        Without `keep_sources` the streams are deleted, all of a store together, once the new one is in place and durable;
        until then the job is not done, and whoever resumes it does that. Where one holds events by then that were written
        since the job was made, none is deleted, and the job fails with Conflict. Raises as `copy`, SchemaMismatch, InvalidArgument.
        """
        if not streams:
            raise InvalidArgument("a stitch takes at least one stream")
        if len(set(prefer)) < len(prefer) or not set(prefer) <= set(range(len(streams))):
            raise InvalidArgument(f"prefer= names streams by their numbers from 0 to {len(streams) - 1}, each once")
        options = _left_out(deduplicate, carrier)
        if prefer:
            options["prefer"] = list(prefer)
        if not keep_sources:
            options["drop"] = True
        return self._begin("stitch", source, streams, into, options, How(request, window, carrier, progress))

    def copy_scope(
        self,
        source: Sited,
        scope: str,
        target: str,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Copy the streams of a scope of another store into one of this store, with the aliases that they have in it. One
        job stands for all; its window is shared by them. Each is whole by itself, as of when its turn came. Names that are
        taken are refused before anything is moved. Raises ScopeNotFound, StreamExists, InvalidName."""
        self._alive()
        site = source.site
        folder = look_at_scope(site, scope, internal=internal, ephemeral=ephemeral)
        within = {"within": True, "independent": True} if site.catalog is self._site.catalog else {}
        options = {"internal": internal, "ephemeral": ephemeral, **within}

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_scope_job(txn, ident, folder, target, place=site.place, options=options, now=now)

        said = "".join(f" {name}" for name in ("internal", "ephemeral") if options[name])
        operation = f"job copy scope {scope} {target}{said}"
        return self._write_down(operation, act, [site], How(request, window, carrier, progress))

    def _begin(
        self,
        verb: str,
        source: Sited,
        streams: Sequence[Source | InStore],
        target: Name,
        options: Mapping[str, Any],
        how: How,
    ) -> Job:
        self._alive()
        full = StreamName.parse(target)
        sites, parts = placed(source.site, streams)
        # Who asks again gets the job that was made, also where its sources are gone since.
        drawn = [] if self._known(how.request) else [draw(sites[each.store], *each) for each in parts]
        places = places_of(sites, self._site)
        within = {"within": True} if places == [{}] else {}
        chosen: dict[str, Any] = {**options, **within}
        stages = [StreamId(self._site.runtime.ids.bits(63)) for _ in drawn]

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_job(txn, ident, verb, full, drawn, stages, places=places, options=chosen, now=now)

        for name in chosen.get("deduplicate", ()) if drawn else ():
            if not any(name in each.stretch.view.info.schema.columns.names for each in drawn):
                raise InvalidArgument(f"deduplicate= names columns of the streams; none of them has '{name}'")
        said = "".join(_said(name, value) for name, value in chosen.items() if name != "within")
        named = ",".join(f"{each.store}:{each.part}" if each.store else str(each.part) for each in parts)
        operation = f"job {verb} {named} {full}{said}"
        return self._write_down(operation, act, sites, how)

    def _known(self, request: str | None) -> bool:
        check_request(request)
        with self._site.catalog.reading() as reading:
            return request is not None and reading.request(request) is not None

    def _write_down(
        self,
        operation: str,
        act: Callable[[Writing, str, Micros], JobRow],
        sites: Sequence[Site],
        how: How,
    ) -> Job:
        check_request(how.request)
        now = self._site.runtime.clock.now()
        ident = f"{self._site.runtime.ids.bits(48):012x}"
        with self._site.catalog.writing() as txn:
            result = once(txn, how.request, operation, now, lambda: {"job": act(txn, ident, now).id})
            self._sweep(txn, now)
        return self._start(str(result["job"]), sites, how)

    # finding

    def list(self) -> builtins.list[JobRow]:
        """All jobs, the newest last."""
        with self._site.catalog.reading() as txn:
            rows = [JobRow.from_piece(piece) for piece in txn.pieces(JOB)]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def get(self, job: str) -> Job:
        """One job. Raises JobNotFound."""
        if (here := self._running.get(job)) is not None:
            return here
        found = Job(self._site, job)
        found.row()
        return found

    def forget(self, job: str) -> None:
        """Drop the row of a job that has ended. Raises JobNotFound, InvalidArgument for one that has not."""
        with self._site.catalog.writing() as txn:
            row = need_job(txn, job)
            if not row.state.ended:
                raise InvalidArgument(f"job {job} is {row.state.value}: cancel it first")
            txn.drop_piece(JOB, job)

    def resume(
        self,
        job: str,
        *,
        source: Sited | Sequence[Sited] | None = None,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        take_over: bool = False,
    ) -> Job:
        """Go on with a job that was paused, has failed, or whose process is gone. `source` is the store it reads, or
        all other stores that it does in the order of `JobRow.places`; by default they are opened where they were. Raises JobNotFound, JobRunning; what opening a store raises."""
        self._alive()
        places = Job(self._site, job).row().places
        if source is None:
            sites = [self._open_site(place).site if place else self._site for place in places]
        else:
            sites = given(places, self._site, source if isinstance(source, Sequence) else [source])
        return self._start(job, sites, How(None, window, carrier, progress), take_over=take_over)

    def _start(self, ident: str, sites: Sequence[Site], how: How, *, take_over: bool = False) -> Job:
        here = self._running.get(ident)
        if here is not None and here.alive:
            return here
        _, window, carrier, progress = how
        job = Job(self._site, ident)
        run = Run(sites, self._site, ident, window=window, carrier=carrier, progress=progress, changed=self._changed)
        self._running[ident] = job
        try:
            job.start(run, take_over=take_over, ended=lambda: self._let_go(job))
        except BaseException:
            self._let_go(job)
            raise
        return job

    def _let_go(self, job: Job) -> None:
        """Who still has it may ask it for what it made."""
        if self._running.get(job.id) is job:
            del self._running[job.id]

    # ending

    def close(self) -> None:
        """Pause the jobs that run here. A second call is harmless."""
        self._closed = True
        for job in tuple(self._running.values()):
            job.stop()

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

    def _sweep(self, txn: Writing, now: Micros) -> None:
        """Forget jobs that ended long ago."""
        for piece in txn.pieces(JOB):
            row = JobRow.from_piece(piece)
            if row.state.ended and row.created_at < now - limits.JOBS_KEPT_US:
                txn.drop_piece(JOB, row.id)


def _left_out(columns: Sequence[str], carrier: Carrier | None) -> dict[str, Any]:
    """How repeats are left out, as a job's options. Raises InvalidArgument for a carrier that can't find them, and for a
    text, whose letters would be taken for columns."""
    if isinstance(columns, str):
        raise InvalidArgument(f"deduplicate= takes a list of columns: ['{columns}']")
    if columns and carrier is not None and not isinstance(carrier, Sifter):
        raise InvalidArgument(
            "this carrier moves bytes, and can't find repeats; give deduplicate= or carrier=, not both"
        )
    return {"deduplicate": list(columns)} if columns else {}


def _said(name: str, value: object) -> str:
    """An option as a request tells it."""
    return f" {name}" if value is True else f" {name}={json.dumps(value, sort_keys=True)}"
