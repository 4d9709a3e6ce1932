"""Background upkeep: regular compaction, manifests, removal of expired streams, then collection."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.errors import Closed
from anabranch.log.recovery.manifest import export, newest_at
from anabranch.log.upkeep.collect import collect
from anabranch.log.upkeep.compact import compact
from anabranch.log.upkeep.failures import run_all
from anabranch.runtime.log_events import UPKEEP_SKIPPED
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime


class Maintenance(Periodic):
    """The background task of one process. Several processes that maintain the same store take turns: while one
    compacts, the others do not. An error does not end the loop: it is logged and kept in `failure`, and the next round
    tries again. An error of a single stream does not even end the round (see `log.upkeep.failures`)."""

    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, *, sweep: Callable[[], object] = lambda: None
    ) -> None:
        """`sweep` removes expired streams; it is called before each collection."""
        self._sweep = sweep
        self._catalog = catalog
        self._blobs = blobs
        super().__init__(runtime, "upkeep", runtime.settings.maintenance_s, self._maintain)

    def _maintain(self) -> None:
        run_all((self._compact, self._export, self._sweep, self._collect))

    def _compact(self) -> None:
        if self._compacting():
            return
        report = compact(self._catalog, self._blobs, self._runtime, background=True, progress=self._stop_if_closing)
        for what in report.skipped:
            UPKEEP_SKIPPED(reason=what)

    def _collect(self) -> None:
        collect(self._catalog, self._blobs, self._runtime, background=True, progress=self._stop_if_closing)

    def _export(self) -> None:
        """Writes a manifest if the newest one is older than `manifest_s`."""
        period = self._runtime.settings.manifest_s
        if period is None:
            return
        newest = newest_at(self._blobs)
        if newest is None or newest <= self._runtime.clock.now() - round(period * 1_000_000):
            export(self._catalog, self._blobs, self._runtime, progress=self._stop_if_closing)

    def _compacting(self) -> bool:
        """True if a compaction is running in any process."""
        now = self._runtime.clock.now()
        with self._catalog.reading() as snapshot:
            return any(lease.kind == "compact" and lease.expires_at > now for lease in snapshot.leases())

    def _stop_if_closing(self, what: str, done: int, total: int) -> None:
        if self.closing:  # during a round, between two row groups or pages
            raise Closed("store")
