"""The sign of life of a process that runs a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.catalog.port import Catalog
from anabranch.errors import AnabranchError, Conflict
from anabranch.runtime.ports import Runtime
from anabranch.spark import pipeline_row as row_of
from anabranch.spark.pipeline_progress import QueryProgress
from anabranch.spark.pipeline_row import HEARTBEAT_S, Holder

__all__ = ["Heartbeat"]


class Heartbeat:
    """Keeps the catalog's row alive from the claim on, and hears there of a request to stop.

    `progress` is what it tells of the queries. `stop_requested` and `lost` are what it heard: that somebody asks the
    pipeline to stop, that another process has taken it over.
    """

    def __init__(self, catalog: Catalog, runtime: Runtime, name: str, holder: Holder) -> None:
        self._catalog = catalog
        self._clock = runtime.clock
        self._name = name
        self.holder = holder
        self.progress: Sequence[QueryProgress] = ()
        self.stop_requested = False
        self.lost: Conflict | None = None
        self._closed = False
        self._wake = runtime.tasks.condition()
        self._task = runtime.tasks.spawn(f"pipeline-{name}", self._work)

    def close(self) -> None:
        """End it. A second call is harmless."""
        self._closed = True
        with self._wake:
            self._wake.notify_all()
        self._task.join()

    def _work(self) -> None:
        while not self._closed and self.lost is None:
            try:
                self._beat()
            except Conflict as exc:
                self.lost = exc
            except AnabranchError:
                # The row outlives several missed beats, and one whose answer was lost. What ails the store for longer,
                # the queries meet too.
                pass
            with self._wake:
                if not self._closed:
                    self._wake.wait(HEARTBEAT_S)

    def _beat(self) -> None:
        told = [each.as_json() for each in self.progress]
        asked = row_of.beat(self._catalog, self._name, self.holder, now=self._clock.now(), progress=told)
        self.stop_requested |= asked
