"""The streams of a store, with the operations that move bytes: to another store, or within this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from anabranch import limits
from anabranch.core.copy import CopyResult
from anabranch.core.routing import RoutingKey
from anabranch.core.stitch import JoinResult
from anabranch.errors import InvalidArgument, InvalidCut
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.cut import TAIL, Edge, StreamCut, parse_cut
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.store.copy_where import FilteredCopies
from anabranch.store.replacing import ReplacingStreams
from anabranch.store.subscribers import StoreSubscribers
from anabranch.streams.algebra.cuts import CountMisplaced
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


class StoreStreams(ReplacingStreams):
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
        super().__init__(changes, companions, ephemeral, count_misplaced, own)
        self._own: TargetStore = own

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
            filtered = FilteredCopies(self._own.jobs, self._own.job_store, self._changes)
            made = filtered.begin(part, full, where, keys, window=window, progress=progress, request=request)
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
