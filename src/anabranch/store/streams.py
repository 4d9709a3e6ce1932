"""The streams of a store, with the operations that move bytes: to another store, or within this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from anabranch import limits
from anabranch.core import cuts
from anabranch.core.copy import CopyResult
from anabranch.core.routing import RoutingKey
from anabranch.core.stitch import JoinResult
from anabranch.errors import InvalidArgument, InvalidCut
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.cut import TAIL, Edge, StreamCut, parse_cut
from anabranch.model.misplaced import Misplaced
from anabranch.model.names import StreamName
from anabranch.model.replaced import Replaced
from anabranch.model.stream_range import StreamRange
from anabranch.model.time_kind import time_kind
from anabranch.model.times import to_micros
from anabranch.store.at_once import AtOnce, Time, check_timed
from anabranch.store.subscribers import StoreSubscribers
from anabranch.streams.algebra.cuts import CountMisplaced, Cut
from anabranch.streams.arguments import StreamKey
from anabranch.streams.builder import StreamBuilder
from anabranch.streams.change import Changes
from anabranch.streams.companions.api import Companions
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.manager import Name, Source, Streams
from anabranch.transfer.jobs.follow_until import Until
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.job_store import ProvidesJobStore
from anabranch.transfer.jobs.manager import Jobs
from anabranch.transfer.jobs.sources import InStore, check_several
from anabranch.writing.writer import Writer


class TargetStore(ProvidesJobStore, Protocol):
    """Another store, as far as copies need it."""

    @property
    def jobs(self) -> Jobs:
        """The jobs of the store."""
        ...

    @property
    def streams(self) -> Streams:
        """The streams of the store."""
        ...

    def writer(self, stream: StreamName) -> Writer:
        """Open a writer to a stream."""
        ...

    @property
    def subscribers(self) -> StoreSubscribers:
        """The subscribers of the store's streams."""
        ...


class StoreStreams(Streams):
    """`Streams` whose copies, appends and stitches can also go `to` another store. Then a job of that store
    (`Store.jobs`) moves the bytes, and these calls wait for it. The job survives interruptions and can be resumed.

    `window` is the number of bundles of ranges that are moved at a time; `progress` is called with logical bytes. What
    an interrupted call has moved is kept.
    """

    def __init__(
        self,
        changes: Changes,
        companions: Companions,
        ephemeral: Ephemeral,
        count_misplaced: CountMisplaced,
        own: TargetStore,
    ) -> None:
        super().__init__(changes, companions)
        self._ephemeral = ephemeral
        self._count_misplaced = count_misplaced
        self._own = own

    def truncate(
        self,
        name: StreamKey,
        cut: StreamCut | Edge | str | None = None,
        *,
        by: Literal["groups"] | None = None,
        request: str | None = None,
    ) -> None:
        """As `Streams.truncate`. With `by="groups"` truncates only what all subscribers of the stream have read and its
        policy (`RetainConsumed`) releases, and with a `cut` at most up to it. Calling again also removes what was read
        since, so it takes no request id. Raises InvalidArgument if the policy names no groups."""
        if by is None and cut is not None:
            super().truncate(name, cut, request=request)
        elif by is None:
            raise InvalidCut("expected the cut to truncate at, or by='groups'")
        elif by != "groups":
            raise InvalidArgument(f"expected by='groups' or no by=, got {by!r}")
        elif request is not None:
            raise InvalidArgument(
                "truncate(by='groups') accepts no request id: repeating it removes events that were read since"
            )
        else:
            self._own.subscribers.release(name, TAIL if cut is None else parse_cut(cut))

    def builder(self, into: Name, *, request: str | None = None) -> StreamBuilder:
        """Build the stream `into` from parts: streams, ranges, and events written for it. They are stitched at the end
        of a `with` block; see `StreamBuilder`. Raises StreamExists, ScopeNotFound, and as `stitch`."""
        return StreamBuilder(self, self._ephemeral, self._changes, self._own.writer, into, request)

    def copy(
        self,
        source: Source,
        target: Name,
        *,
        where: str | None = None,
        keys: Sequence[RoutingKey] = (),
        to: TargetStore | None = None,
        independent: bool = False,
        follow: Until | bool = False,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        started: Callable[[Job], object] | None = None,
        request: str | None = None,
    ) -> CopyResult:
        """As `Streams.copy`. With `to` (another store) or `independent` the bytes are copied too: no blob is shared.
        With `follow` the call keeps the copy up to date until that condition is met; see `Jobs.copy`. Raises JobStopped
        if the job is paused or cancelled.

        `where` copies only the events for which a condition is true, in the SQL of queries, as after WHERE: on the
        stream's columns, `_segment`, `_offset` and `_appended`. `keys` copies only the events with one of these routing
        keys. The segments and the order of each key stay; in each segment the offsets begin where they did and leave no
        gap (`CopyResult.pointer`, `CopyResult.cut`). The source is copied as of the beginning of the call.

        Where the key ranges of segments and the times of their events decide it, only the catalog is changed. Otherwise
        a job evaluates the condition, and stores those events again that lie scattered; this call waits for it, and
        `started` is called with it before. Raises InvalidSql for a condition that can't be evaluated, or whose result
        may change, such as one with `now()`; MissingExtra without DuckDB; InvalidArgument for a byte stream, or with
        `to`, `independent` or `follow`: copy by the filter first, then copy that.
        """
        if where is not None or not (isinstance(keys, tuple) and not keys):
            if to is not None or independent or follow is not False:
                raise InvalidArgument(
                    "a copy by a filter stays within its store: copy with where= first, then copy the result to another "
                    "store, independently or following"
                )
            part, full = StreamRange.of(source), StreamName.parse(target)
            made = self._at_once.copy(part, full, where, keys, window=window, progress=progress, request=request)
            if isinstance(made, CopyResult):
                return made
            job = made
        elif to is None and not independent and follow is False:
            return super().copy(source, target, request=request)
        else:
            job = (to or self._own).jobs.copy(
                self._own,
                source,
                target,
                follow=follow,
                independent=independent or to is not None,
                window=window,
                progress=progress,
                request=request,
            )
        if started is not None:
            started(job)
        copied: CopyResult = job.wait()
        return copied

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
        made = self._at_once.replace(
            stream,
            between,
            with_,
            by,
            ephemeral=self._ephemeral,
            open_writer=self._own.writer,
            window=window,
            progress=progress,
            request=request,
        )
        if isinstance(made, Replaced):
            return made
        if started is not None:
            started(made)
        replaced: Replaced = made.wait()
        return replaced

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
        check_timed(view.info, by)
        place = None if cut is None else cuts.resolve(view, parse_cut(cut))
        return self._count_misplaced(view, at, place, by == "event")

    @property
    def _at_once(self) -> AtOnce:
        return AtOnce(self._own.jobs, self._own.job_store, self._changes)

    def append(
        self,
        source: Source,
        onto: StreamKey,
        *,
        to: TargetStore | None = None,
        deduplicate: Sequence[str] = (),
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> JoinResult:
        """As `Streams.append`, also onto a stream of the store `to`. With `deduplicate` it leaves out events that
        equal, in all these columns, an event of `onto` or an earlier one of the source. Both copy the bytes too; see
        `Jobs.append`."""
        if to is None and not deduplicate:
            return super().append(source, onto, request=request)
        other = to or self._own
        name = other.streams.get(onto).name if isinstance(onto, int) else onto
        job = other.jobs.append(
            self._own, source, name, deduplicate=deduplicate, window=window, progress=progress, request=request
        )
        joined: JoinResult = job.wait()
        return joined

    def stitch(
        self,
        sources: Sequence[Source | InStore],
        *,
        into: Name,
        to: TargetStore | None = None,
        keep_sources: bool = True,
        deduplicate: Sequence[str] = (),
        prefer: Sequence[int] = (),
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> JoinResult:
        """As `Streams.stitch`, also into a stream of the store `to`. With `deduplicate` it leaves out events that
        repeat another one in all these columns; `prefer` says which sources' events are kept then. Both copy the bytes too;
        see `Jobs.stitch`. Sources may be in several stores: one that is not in this store is given as `InStore`.
        Without `keep_sources` they are deleted once the new stream exists. In another store that is a separate
        transaction, which raises Conflict if they were written to meanwhile."""
        check_several(sources)
        if prefer and not deduplicate:
            raise InvalidArgument(
                "prefer= chooses which of several repeated events to keep: pass the columns to compare as deduplicate="
            )
        here = [each for each in sources if not isinstance(each, InStore)]
        if to is None and not deduplicate and len(here) == len(sources):  # reads no events
            return super().stitch(here, into=into, keep_sources=keep_sources, request=request)
        job = (to or self._own).jobs.stitch(
            self._own,
            sources,
            into,
            keep_sources=keep_sources,
            deduplicate=deduplicate,
            prefer=prefer,
            window=window,
            progress=progress,
            request=request,
        )
        joined: JoinResult = job.wait()
        return joined
