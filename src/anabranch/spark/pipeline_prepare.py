"""Before a pipeline's queries start: result streams, starting places and checkpoint folders, settled once for each
generation and found again by every later run of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.model.names import StreamName
from anabranch.spark.late_commit import LateAccount
from anabranch.spark.pipeline_home import checkpoint_folder
from anabranch.spark.pipeline_plan import Step, resolve_starts
from anabranch.spark.pipeline_query import analyze, create_streams, drop_views, late_account
from anabranch.spark.pipeline_row import Output, PipelineRow, save
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that is ready to start. `checkpoint` is a folder, `starts` a cut's text for each source."""

    frame: DataFrame
    late: LateAccount | None
    checkpoint: str
    starts: Mapping[str, str]


def prepare(
    spark: SparkSession,
    store: Store,
    row: PipelineRow,
    steps: Sequence[Step],
    *,
    events_max: int | None = None,
    checkpoints: str | None = None,
) -> dict[str, Prepared]:
    """Make ready every step, in order. What it creates is removed again where it fails. `events_max` as in `analyze`;
    `checkpoints` is the folder for a new generation's, None for the store's own.

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
            try:
                frame = analyze(spark, store, step, output.starts, events_max)
                late = late_account(store, step, frame)
                create_streams(store, step, frame, late, created)
            finally:
                drop_views(spark, step)
            outputs.append(replace(output, late=None if late is None else str(late.target)))
            made[step.target] = Prepared(frame, late, str(checkpoint_folder(store, output.checkpoint)), output.starts)
    except BaseException:
        for name in created:
            store.streams.delete(name)
        raise
    if not row.prepared:
        _settle(store, row, steps, outputs)
    return made


def _settle(store: Store, row: PipelineRow, steps: Sequence[Step], outputs: Sequence[Output]) -> None:
    """Make the generation's beginnings final. Done twice, after a crash in the middle, it is as if done once."""
    if row.restart.replace:
        for step in steps:
            for name in step.statement.targets:
                if store.streams.exists(name):
                    store.streams.truncate(name, store.streams.tail(name))
    for root in {checkpoint_folder(store, output.checkpoint).parent.parent for output in outputs}:
        for old in root.glob("*/*"):
            shutil.rmtree(old, ignore_errors=True)
    save(store.catalog, replace(row, prepared=True, outputs=tuple(outputs)))


def _checkpoint(row: PipelineRow, step: Step, folder: str | None) -> str:
    target = step.statement.target
    root = "pipelines" if folder is None else str(Path(folder).expanduser().absolute())
    return f"{root}/{row.name}/{target.scope}.{target.name}/{row.generation:04}"
