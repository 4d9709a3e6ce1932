"""Upkeep in the background: compaction, a manifest from time to time, what has run out, then collection, every so many
seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.errors import Closed
from anabranch.log.collect import collect
from anabranch.log.compact import compact
from anabranch.log.manifest import export, newest_at
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime

_log = logging.getLogger("anabranch.maintenance")


class Maintenance(Periodic):
    """A background task of one process. Where several processes keep the same store up, they take turns: while one
    compacts, the others leave it at that. An error does not end the loop: it is logged, kept in `failure`, and the
    next round tries again."""

    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, *, sweep: Callable[[], object] = lambda: None
    ) -> None:
        """`sweep` removes the streams that have run out; it is called ahead of each collection."""
        self._sweep = sweep
        self._catalog = catalog
        self._blobs = blobs
        super().__init__(runtime, "upkeep", runtime.settings.maintenance_s, self._round)

    def _round(self) -> None:
        if not self._compacting():
            report = compact(self._catalog, self._blobs, self._runtime, progress=self._watch)
            for what in report.skipped:
                _log.warning("not compacted: %s", what)
        self._export()
        self._sweep()
        collect(self._catalog, self._blobs, self._runtime, progress=self._watch)

    def _export(self) -> None:
        """A manifest, where the newest one is older than the settings say."""
        period = self._runtime.settings.manifest_s
        if period is None:
            return
        newest = newest_at(self._blobs)
        if newest is None or newest <= self._runtime.clock.now() - round(period * 1_000_000):
            export(self._catalog, self._blobs, self._runtime, progress=self._watch)

    def _compacting(self) -> bool:
        """True if a compaction is under way somewhere."""
        now = self._runtime.clock.now()
        with self._catalog.reading() as snapshot:
            return any(lease.kind == "compact" and lease.expires_at > now for lease in snapshot.leases())

    def _watch(self, what: str, done: int, total: int) -> None:
        if self.closing:  # in the midst of a round, between two row groups or pages
            raise Closed("store")
