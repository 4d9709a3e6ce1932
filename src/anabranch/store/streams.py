"""The streams of a store, with the verbs that move bytes: to another store, or into bytes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anabranch import limits
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import InvalidArgument
from anabranch.log.watch import Watch, silent
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.store.archives import Archiving
from anabranch.streams.algebra import Name, Source
from anabranch.streams.arguments import Which
from anabranch.streams.builder import Builder
from anabranch.streams.jobs.manager import Jobs
from anabranch.streams.jobs.site import Sited
from anabranch.streams.jobs.sources import InStore
from anabranch.streams.jobs.until import Until
from anabranch.streams.manager import Streams
from anabranch.streams.writer import Writer


class Elsewhere(Sited, Protocol):
    """Another store."""

    @property
    def jobs(self) -> Jobs:
        """Its jobs."""
        ...

    @property
    def streams(self) -> Streams:
        """Its streams."""
        ...

    def writer(self, stream: StreamName) -> Writer:
        """A writer to a stream."""
        ...


class StoreStreams(Archiving, Streams):
    """`Streams`, whose copies, appends and stitches also go `to` another store. There bytes are moved by a job of that
    store (`Store.jobs`), which these calls wait for: it lasts through whatever stops it, and can be resumed.

    `window` is how many bundles of ranges are moved at a time, `progress` hears of logical bytes. What an interrupted
    call has moved stays.
    """

    own: Elsewhere

    def builder(self, into: Name, *, request: str | None = None) -> Builder:
        """Make the stream `into` of parts: streams, ranges, and what is written for it, stitched at the end of a `with`
        block; see `Builder`. Raises StreamExists, ScopeNotFound, and as `stitch`."""
        return Builder(self, self.own.writer, into, request)

    def copy(
        self,
        source: Source,
        target: Name,
        *,
        to: Elsewhere | None = None,
        independent: bool = False,
        follow: Until | bool = False,
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Copied:
        """As `Streams.copy`. `to` another store, or `independent`, the bytes are copied too: no blob is shared. With
        `follow` the call goes on until that is over and keeps the copy up to date meanwhile; see `Jobs.copy`. Raises
        JobStopped where somebody pauses or cancels it."""
        if to is None and not independent and follow is False:
            return super().copy(source, target, request=request)
        job = (to or self.own).jobs.copy(
            self.own,
            source,
            target,
            follow=follow,
            independent=independent or to is not None,
            window=window,
            progress=progress,
            request=request,
        )
        copied: Copied = job.wait()
        return copied

    def append(
        self,
        source: Source,
        onto: Which,
        *,
        to: Elsewhere | None = None,
        deduplicate: Sequence[str] = (),
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Joined:
        """As `Streams.append`, onto a stream of the store `to`, or with `deduplicate` without the events that equal in all
        these columns one that `onto` has, or an earlier one of the source: then the bytes are copied too; see
        `Jobs.append`."""
        if to is None and not deduplicate:
            return super().append(source, onto, request=request)
        other = to or self.own
        name = other.streams.get(onto).name if isinstance(onto, int) else onto
        job = other.jobs.append(
            self.own, source, name, deduplicate=deduplicate, window=window, progress=progress, request=request
        )
        joined: Joined = job.wait()
        return joined

    def stitch(
        self,
        sources: Sequence[Source | InStore],
        *,
        into: Name,
        to: Elsewhere | None = None,
        keep_sources: bool = True,
        deduplicate: Sequence[str] = (),
        prefer: Sequence[int] = (),
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Joined:
        """As `Streams.stitch`, into a stream of the store `to`, or with `deduplicate` without the events that repeat
        another in all these columns: then the bytes are copied too, and `prefer` says which sources' events stay; see
        `Jobs.stitch`. Sources may live in several stores: what is not in this one is given as `InStore`. Without
        `keep_sources` they are deleted once the new stream is there; in another store by a
        transaction of their own, which refuses with Conflict where they were written to meanwhile."""
        if isinstance(sources, str | StreamName | StreamRange):
            raise InvalidArgument(f"a stitch takes a list of streams or ranges, not '{sources}' alone")
        here = [each for each in sources if not isinstance(each, InStore)]
        if to is None and not deduplicate and len(here) == len(sources):  # nothing is read, first or last
            return super().stitch(here, into=into, keep_sources=keep_sources, request=request)
        job = (to or self.own).jobs.stitch(
            self.own,
            sources,
            into,
            keep_sources=keep_sources,
            deduplicate=deduplicate,
            prefer=prefer,
            window=window,
            progress=progress,
            request=request,
        )
        joined: Joined = job.wait()
        return joined

    def copy_scope(
        self,
        source: str,
        target: str,
        *,
        to: Elsewhere | None = None,
        internal: bool = False,
        ephemeral: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> list[Copied]:
        """As `Streams.copy_scope`, into a scope of the store `to`, by one job for all streams, each of which is whole by
        itself; `progress` hears of logical bytes. Asked again, it goes on where it was interrupted, and copies what is
        new. A name of a stream or an alias that is taken is refused before anything is moved; see `Jobs.copy_scope`."""
        if to is None:
            return super().copy_scope(
                source, target, internal=internal, ephemeral=ephemeral, progress=progress, request=request
            )
        job = to.jobs.copy_scope(
            self.own,
            source,
            target,
            internal=internal,
            ephemeral=ephemeral,
            window=window,
            progress=progress,
            request=request,
        )
        copies: list[Copied] = job.wait()
        return copies
