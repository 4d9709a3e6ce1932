"""Tools for running the readers of a group, whether its store is local or behind a broker: a number of readers that
follows the load, and statistics of what they receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.groups.load import Distribution, Unread
from anabranch.runtime.ports import Runtime

if TYPE_CHECKING:
    from anabranch.groups.audit import ReaderAudit, Source
    from anabranch.groups.elastic import ElasticReaders


class ReaderTools:
    """The part of a reader group that needs nothing but its load."""

    _runtime: Runtime

    def distribution(self) -> Distribution:
        """Which reader has which segments."""
        raise NotImplementedError

    def unread(self) -> Unread:
        """What the group has not read yet."""
        raise NotImplementedError

    def elastic(
        self,
        start: Callable[[str], None],
        stop: Callable[[str], None],
        *,
        readers_max: int,
        events_per_reader: int = 100_000,
        every_s: float = 1.0,
    ) -> ElasticReaders:
        """Start and stop readers as lag and segments change, checked every `every_s` seconds; see `ElasticReaders`.
        Only one process of a group should do so."""
        from anabranch.groups.elastic import ElasticReaders

        return ElasticReaders(
            self,
            self._runtime,
            start,
            stop,
            readers_max=readers_max,
            events_per_reader=events_per_reader,
            every_s=every_s,
        )

    def audit(self, source: Source) -> ReaderAudit:
        """Statistics of what a reader receives, `for event in audit.over(reader)`: by writer, the age of events,
        duplicates and missing events. `source` returns an event's writer and its sequence number within its key, which
        rises by one; None leaves the event out. Ages are by this machine's clock."""
        from anabranch.groups.audit import ReaderAudit

        return ReaderAudit(self._runtime.clock, source)
