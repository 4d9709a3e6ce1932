"""What the demo runs: a file of SQL under a name, and what is to be proved of its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.runtime.tasks import Task
from anabranch.spark.demo.proof import Claim
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.pipeline import Pipeline

__all__ = ["Job", "Launch"]

# One short run on a machine that does other things too: code that is compiled quickly suits it better than code that is
# compiled well, and two cores have no use for parallel garbage collection.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline and its claims, one for each statement, in the file's order. `events_max` caps a micro-batch."""

    name: str
    sql: str
    claims: tuple[Claim, ...]
    events_max: int | None = None


class Launch:
    """Starts Spark and the pipeline beside the caller, who meanwhile collects and shows."""

    def __init__(self, store: Store, job: Job) -> None:
        self.stage = "starting Spark"
        self.pipeline: Pipeline | None = None
        self.error: Exception | None = None
        self._store = store
        self._job = job
        self._cancelled = False
        self._task: Task = store.runtime.tasks.spawn("launch", self._work)

    def close(self) -> None:
        """Stop the pipeline. If Spark is only starting, it is left to end with this process."""
        self._cancelled = True
        if self.stage != "starting Spark":
            self._task.join()
        if self.pipeline is not None:
            self.pipeline.stop()

    def _work(self) -> None:
        try:
            from anabranch.spark import pipeline
            from anabranch.spark.pipeline_home import checkpoint_root, log_folder
            from anabranch.spark.pipeline_session import quiet_session

            job = self._job
            root = checkpoint_root(self._store, job.name)
            spark = quiet_session(
                log_folder(root),
                name="anabranch demo",
                store=self._store,
                checkpoints=root.text,
                **{"spark.driver.extraJavaOptions": JAVA_OPTIONS},
            )
            if self._cancelled:
                return
            self.stage = "starting the pipeline"
            self._store.runtime.tasks.spawn("warm-up", lambda: _warm_up(spark))
            self.pipeline = pipeline.run(self._store, job.sql, name=job.name, spark=spark, events_max=job.events_max)
            self.stage = "running"
        except Exception as exc:  # told on the screen, whatever it is
            self.error = exc


def _warm_up(spark: SparkSession) -> None:
    """Have Spark start its Python workers while the pipeline is still being planned."""

    def same(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    try:
        spark.range(2).mapInArrow(same, "id long").collect()
    except Exception:  # the pipeline itself will meet the same, and say so
        return
