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
from anabranch.streams.jobs.job import Job
from anabranch.streams.jobs.row import ARCHIVE, IMPORT, JOB, JobRow, need_job
from anabranch.streams.jobs.run import Run
from anabranch.streams.jobs.sift import Sifter
from anabranch.streams.jobs.site import Site, Sited
from anabranch.streams.jobs.until import Until
from anabranch.streams.requests import once

Name = str | StreamName
Source = Name | StreamRange
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
        return self._begin("copy", source, [stream], target, request, window, progress, options, carrier)

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
        return self._begin("append", source, [stream], onto, request, window, progress, options, carrier)

    def stitch(
        self,
        source: Sited,
        streams: Sequence[Source],
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
        """A new stream of all events of the first stream of another store, then all of the second, and so on.

        With `deduplicate`, of events that are equal in all these columns only one stays: that of the first stream, or
        of the stream that stands first in `prefer`, a list of numbers of streams, from 0 on; within a stream the first.
        Those streams are read first. `JobRow.repeats` counts what was left out. Offsets are not those of the sources
        then. The events of all streams are digested first, 24 bytes each, on disk.

        Without `keep_sources` the streams are deleted, all together, once the new one is in place and durable; until then
        the job is not done, and whoever resumes it does that. Where one holds events by then that were written since the
        job was made, none is deleted, and the job fails with Conflict. Raises as `copy`, SchemaMismatch, InvalidArgument.
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
        return self._begin("stitch", source, streams, into, request, window, progress, options, carrier)

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
        return self._write_down(request, operation, act, site, window=window, carrier=carrier, progress=progress)

    def _begin(
        self,
        verb: str,
        source: Sited,
        streams: Sequence[Source],
        target: Name,
        request: str | None,
        window: int,
        progress: Watch,
        options: Mapping[str, Any] | None = None,
        carrier: Carrier | None = None,
    ) -> Job:
        self._alive()
        full = StreamName.parse(target)
        parts = [StreamRange.of(each) for each in streams]
        site = source.site
        # Who asks again gets the job that was made, also where its sources are gone since.
        drawn = [] if self._known(request) else [draw(site, part) for part in parts]
        within = {"within": True} if site.catalog is self._site.catalog else {}
        chosen: dict[str, Any] = {**(options or {}), **within}
        stages = [StreamId(self._site.runtime.ids.bits(63)) for _ in drawn]

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            return make_job(txn, ident, verb, full, drawn, stages, place=site.place, options=chosen, now=now)

        for name in chosen.get("deduplicate", ()) if drawn else ():
            if not any(name in each.stretch.view.info.schema.columns.names for each in drawn):
                raise InvalidArgument(f"deduplicate= names columns of the streams; none of them has '{name}'")
        said = "".join(_said(name, value) for name, value in chosen.items() if name != "within")
        operation = f"job {verb} {','.join(map(str, parts))} {full}{said}"
        return self._write_down(request, operation, act, site, window=window, carrier=carrier, progress=progress)

    def _known(self, request: str | None) -> bool:
        with self._site.catalog.reading() as reading:
            return request is not None and reading.request(request) is not None

    def _write_down(
        self,
        request: str | None,
        operation: str,
        act: Callable[[Writing, str, Micros], JobRow],
        site: Site,
        *,
        window: int,
        carrier: Carrier | None,
        progress: Watch,
    ) -> Job:
        now = self._site.runtime.clock.now()
        ident = f"{self._site.runtime.ids.bits(48):012x}"
        with self._site.catalog.writing() as txn:
            result = once(txn, request, operation, now, lambda: {"job": act(txn, ident, now).id})
            self._sweep(txn, now)
        return self._start(str(result["job"]), site, window=window, carrier=carrier, progress=progress)

    # finding

    def list(self) -> builtins.list[JobRow]:
        """All jobs, the newest last."""
        with self._site.catalog.reading() as txn:
            rows = [JobRow.from_piece(piece) for piece in txn.pieces(JOB)]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def get(self, job: str) -> Job:
        """One job. Raises JobNotFound."""
        if job in self._running:
            return self._running[job]
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
        self._running.pop(job, None)

    def resume(
        self,
        job: str,
        *,
        source: Sited | None = None,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        take_over: bool = False,
    ) -> Job:
        """Go on with a job that was paused, has failed, or whose process is gone. `source` is the store it reads, by
        default opened where it was. Raises JobNotFound, JobRunning; what opening a store raises."""
        self._alive()
        row = Job(self._site, job).row()
        if source is not None:
            site = source.site
        else:
            own = row.options.get("within") or row.verb in (ARCHIVE, IMPORT)
            site = self._site if own else self._open_site(row.place).site
        return self._start(job, site, window=window, carrier=carrier, progress=progress, take_over=take_over)

    def _start(
        self, ident: str, site: Site, *, window: int, carrier: Carrier | None, progress: Watch, take_over: bool = False
    ) -> Job:
        here = self._running.get(ident)
        if here is not None and here.alive:
            return here
        job = Job(self._site, ident)
        run = Run(site, self._site, ident, window=window, carrier=carrier, progress=progress, changed=self._changed)
        job.start(run, take_over=take_over)
        self._running[ident] = job
        return job

    # ending

    def close(self) -> None:
        """Pause the jobs that run here. A second call is harmless."""
        self._closed = True
        for job in tuple(self._running.values()):
            job.stop()
        self._running.clear()

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
    """How repeats are left out, as a job's options. Raises InvalidArgument for a carrier that can't find them."""
    if columns and carrier is not None and not isinstance(carrier, Sifter):
        raise InvalidArgument(
            "this carrier moves bytes, and can't find repeats; give deduplicate= or carrier=, not both"
        )
    return {"deduplicate": list(columns)} if columns else {}


def _said(name: str, value: object) -> str:
    """An option as a request tells it."""
    return f" {name}" if value is True else f" {name}={json.dumps(value, sort_keys=True)}"
