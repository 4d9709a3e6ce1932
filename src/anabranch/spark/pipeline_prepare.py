"""Before a pipeline's queries start: result streams, starting places and checkpoint folders, settled once for each
generation and found again by every later run of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.spark.checkpoint_place import CheckpointPlace
from anabranch.spark.late_commit import LateAccount
from anabranch.spark.pipeline_home import output_place, output_text
from anabranch.spark.pipeline_plan import Step, resolve_starts
from anabranch.spark.pipeline_query import analyze, create_streams, drop_views, late_account
from anabranch.spark.pipeline_row import Output, PipelineRow, save
from anabranch.spark.reach import reach
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.streams.holding import Held

__all__ = ["Prepared", "prepare"]

# Views have their names from a statement's place in its file, and a session has one of each name: two pipelines that begin
# at the same time would read each other's streams.
_views = threading.Lock()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that is ready to start. `target` and the account's are known by their ids, so they may be renamed.
    `starts` holds a cut's text for each source."""

    frame: DataFrame
    target: StreamId
    late: LateAccount | None
    checkpoint: CheckpointPlace
    starts: Mapping[str, str]


def prepare(
    spark: SparkSession,
    store: Store,
    row: PipelineRow,
    steps: Sequence[Step],
    *,
    events_max: int | None = None,
    checkpoints: str | None = None,
    held: list[Held] | None = None,
) -> dict[str, Prepared]:
    """Make ready every step, in order. What it creates is removed again where it fails. `events_max` as in `analyze`;
    `checkpoints` is the folder or URL for a new generation's, None for the store's own. `held` as in `create_streams`.

    Raises InvalidSql, InvalidArgument for a starting place that does not fit, Conflict.
    """
    known = {output.target: output for output in row.outputs}
    created: list[StreamName] = []
    made: dict[str, Prepared] = {}
    outputs: list[Output] = []
    try:
        for step in steps:
            output = known[step.target]
            if not row.prepared:
                starts = resolve_starts(store, step, row.restart)
                output = replace(output, starts=starts, checkpoint=_checkpoint(row, step, checkpoints))
            with _views:
                try:
                    frame = analyze(spark, store, step, output.starts, events_max)
                finally:
                    drop_views(spark, step)
            late = late_account(store, step, frame)
            create_streams(store, step, frame, late, created, held)
            outputs.append(replace(output, late=None if late is None else str(late.target)))
            if late is not None:
                late = replace(late, target=store.streams.get(step.statement.late_target).id)
            target = store.streams.get(step.statement.target).id
            made[step.target] = Prepared(frame, target, late, _reached(spark, store, output), output.starts)
    except BaseException:
        for name in created:
            store.streams.delete(name)
        for each in held or ():
            each.leave()
        raise
    if not row.prepared:
        _settle(store, row, steps, outputs)
    return made


def _settle(store: Store, row: PipelineRow, steps: Sequence[Step], outputs: Sequence[Output]) -> None:
    """Make the generation's beginnings final. Done twice, after a crash in the middle, it is as if done once."""
    save(store.catalog, row)  # from here on the generation before is given up
    if row.restart.replace:
        for step in steps:
            for name in step.statement.targets:
                if store.streams.exists(name):
                    store.streams.truncate(name, store.streams.tail(name))
    roots = (output_place(store, output.checkpoint).above(2) for output in outputs)
    for root in {root.text: root for root in roots}.values():
        root.empty()
    save(store.catalog, replace(row, prepared=True, outputs=tuple(outputs)))


def _checkpoint(row: PipelineRow, step: Step, place: str | None) -> str:
    target = step.statement.target
    return output_text(row.name, f"{target.scope}.{target.name}", row.generation, place)


def _reached(spark: SparkSession, store: Store, output: Output) -> CheckpointPlace:
    """The output's checkpoint, where Spark can write it. Raises InvalidArgument where it can't."""
    place = output_place(store, output.checkpoint)
    why_not = reach(spark, place.text)
    if why_not is not None:
        raise InvalidArgument(
            f"Spark can't keep checkpoints in {place.for_spark}: {why_not}. Or name a folder that every machine of the "
            "job sees by checkpoints="
        )
    return place
