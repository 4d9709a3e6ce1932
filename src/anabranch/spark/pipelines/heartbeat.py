"""The heartbeat of a process that runs a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.catalog.port import Catalog
from anabranch.errors import Conflict
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.progress import QueryProgress
from anabranch.spark.pipelines.record import HEARTBEAT_S, PipelineHolder

__all__ = ["Heartbeat"]


class Heartbeat:
    """Renews the catalog's row from the claim on, in a background task, and reads requests to stop from it.

    `progress` is what it writes about the queries. `stop_requested` is True once the pipeline is asked to stop; `lost`
    is the error once another process has taken the pipeline over. The row stays held over several missed heartbeats;
    if the store fails for longer, the queries fail too.
    """

    def __init__(self, catalog: Catalog, runtime: Runtime, name: str, holder: PipelineHolder) -> None:
        self._catalog = catalog
        self._clock = runtime.clock
        self._name = name
        self.holder = holder
        self.progress: Sequence[QueryProgress] = ()
        self.stop_requested = False
        self._loop = Periodic(
            runtime, f"heartbeat of pipeline {name}", HEARTBEAT_S, self._beat, at_once=True, ends_on=(Conflict,)
        )
        self._loop.start()

    @property
    def lost(self) -> Conflict | None:
        """See the class."""
        ended_by = self._loop.ended_by
        return ended_by if isinstance(ended_by, Conflict) else None

    def close(self) -> None:
        """Stop the heartbeat. A second call is harmless."""
        self._loop.close()

    def _beat(self) -> None:
        progress_json = [each.as_json() for each in self.progress]
        asked = row_of.beat(self._catalog, self._name, self.holder, now=self._clock.now(), progress=progress_json)
        self.stop_requested |= asked
