"""Prepares a pipeline's queries before they start: result streams, starting positions and checkpoint folders.

These are fixed once for each generation; every later run of the generation uses the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.errors import InvalidArgument, NotFound
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.pipelines.analyze import AnalyzedQuery, analyze
from anabranch.spark.pipelines.checkpoint_places import output_checkpoint, output_checkpoint_text
from anabranch.spark.pipelines.late_commit import LateEventsSpec
from anabranch.spark.pipelines.late_spec import late_spec
from anabranch.spark.pipelines.plan import Step, resolve_starts
from anabranch.spark.pipelines.record import PipelineOutput, PipelineRow, get, record_created, save
from anabranch.spark.pipelines.result_streams import check_streams, create_streams
from anabranch.spark.pipelines.source_views import SourceReads
from anabranch.spark.pipelines.targets import StreamFeeders, check_replace, refuse_other_feeder
from anabranch.spark.session.spark_access import configure_access
from anabranch.spark.source.following import FollowedRun
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.store.engine_api import Held

__all__ = ["DeployedRun", "PreparedQuery", "RunOptions", "check_present", "prepare", "prepare_standby"]


@dataclass(frozen=True, slots=True)
class DeployedRun:
    """A run of a deployed query, whose host holds the query in this epoch. Only one host holds it at a time, so the run
    takes the pipeline from any earlier run of the query. `replay` is the version whose results it recomputes; see
    `anabranch.deployments.replay`."""

    epoch: int
    replay: int | None = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a pipeline runs: the arguments of `run` of these names. `checkpoints` as text."""

    events_max: int | None = None
    checkpoints: str | None = None
    once: bool = False
    ephemeral: bool = False
    also: bool = False
    flush: bool = False
    trigger_us: int | None = None
    deployed: DeployedRun | None = None


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A statement that is ready to start. `target`, `sides` and the target of `late` are ids, so the streams may be
    renamed. `starts` holds a cut as text for each source."""

    frame: DataFrame
    target: StreamId
    late: LateEventsSpec | None
    checkpoint: CheckpointFolder
    starts: Mapping[str, str]
    sides: tuple[StreamId, ...] = ()
    feedback: tuple[StreamId, ...] = ()

    @property
    def streams(self) -> tuple[StreamId, ...]:
        """The streams that the statement writes, other than by feedback."""
        late = None if self.late is None else self.late.target
        return (self.target, *self.sides, *([] if late is None else [late]))


def prepare(
    spark: SparkSession,
    store: Store,
    row: PipelineRow,
    steps: Sequence[Step],
    options: RunOptions,
    held: list[Held] | None = None,
) -> dict[str, PreparedQuery]:
    """Prepare every step, in order. If it fails, the streams that it created are deleted. `held`: see `create_streams`.
    With `flush` the run closes all windows at its end; with `once` it does so for statements whose sources are all
    sealed. The run of a deployed query waits a little for its hot standby.

    Raises InvalidSql, InvalidArgument for a starting position that does not fit, StreamHasPipeline, Conflict.
    """
    known = {output.target: output for output in row.outputs}
    feeders = StreamFeeders.beside(store, row.name)
    created: list[StreamId] = []
    made: dict[str, PreparedQuery] = {}
    outputs: list[PipelineOutput] = []
    ended: set[StreamName] = set()
    going_on = {name for step in steps if not _starts_over(row, step) for name in step.statement.targets}
    try:
        for step in steps:
            ends = _ends(store, step, ended, flush=options.flush) if options.once else None
            if ends is not None:
                ended.update(step.statement.targets)
            output = known[step.target]
            if _starts_over(row, step):
                starts = resolve_starts(store, step, row.restart, going_on)
                name = f"{step.statement.target.scope}.{step.statement.target.name}"
                place = output_checkpoint_text(row.name, name, row.generation, options.checkpoints)
                output = replace(output, starts=starts, checkpoint=place)
            standby = output_checkpoint(store, output.checkpoint).text if options.deployed else None
            query, late = _analyzed(
                spark, store, step, SourceReads(output.starts, options.events_max, ends, await_standby=standby)
            )
            if not options.also:
                _refuse_other_feeders(store, feeders, row, output, step, late)
            create_streams(store, step, query.columns, late, created, row.name, row.made, held)
            target = store.streams.get(step.statement.target).id
            late_id = None
            if late is not None:
                late_id = store.streams.get(step.statement.late_target).id
                output = replace(output, late=str(step.statement.late_target), late_id=stream_id_text(late_id))
                late = replace(late, target=late_id)
            else:
                output = replace(output, late=None, late_id=None)
            sides = tuple(store.streams.get(side.target).id for side in step.statement.sides)
            feedback = tuple(store.streams.get(each.target).id for each in step.statement.feedback)
            output = replace(
                output,
                target_id=stream_id_text(target),
                side_ids=tuple(map(stream_id_text, sides)),
                feedback_ids=tuple(map(stream_id_text, feedback)),
            )
            outputs.append(output)
            checkpoint = _reachable_checkpoint(spark, store, output)
            made[step.target] = PreparedQuery(query.frame, target, late, checkpoint, output.starts, sides, feedback)
        if not row.prepared and row.restart.replace:
            check_replace(store, row.name, _written_streams(_restarted_statements(row, made)))
        record_created(store.catalog, row.name, row.holder, [stream_id_text(each) for each in created])
    except BaseException:
        for hold in held or ():
            hold.leave()
        for each in created:
            with suppress(NotFound):
                store.streams.delete(each)
        raise
    row = replace(row, outputs=tuple(outputs))
    if row.prepared:
        save(store.catalog, row)
    else:
        _settle(store, row, made)
    return made


def check_present(spark: SparkSession, store: Store, row: PipelineRow | None, name: str, steps: Sequence[Step]) -> None:
    """Check steps whose existing streams the pipeline `name` would newly feed (see `check_targets`): refuse what
    `prepare` would refuse, and change nothing. Steps that read streams which do not exist yet are left to `prepare`.
    Raises InvalidSql."""
    for step in steps:
        sources = step.statement.sources.values()
        if all(map(store.streams.exists, sources)):
            query, late = _analyzed(spark, store, step, SourceReads(dict.fromkeys(map(str, sources), "head")))
            check_streams(store, step, query.columns, late, name, () if row is None else row.made)


def prepare_standby(
    spark: SparkSession, store: Store, step: Step, output: PipelineOutput, follow: FollowedRun
) -> PreparedQuery:
    """Prepare a statement to follow its run in another process. `output` is the statement's output in the pipeline's
    row, but with the checkpoint of the standby. Changes nothing. Raises InvalidSql, InvalidArgument."""
    own = output_checkpoint(store, output.checkpoint).text
    query, late = _analyzed(spark, store, step, SourceReads(output.starts, follow=follow, await_standby=own))
    assert output.target_id is not None, "the pipeline runs"
    if late is not None:
        if output.late_id is None:
            raise InvalidArgument(f"the run of the statement for {output.target} keeps no late events")
        late = replace(late, target=stream_id(output.late_id))
    checkpoint = _reachable_checkpoint(spark, store, output)
    sides, feedback = (tuple(map(stream_id, ids)) for ids in (output.side_ids, output.feedback_ids))
    return PreparedQuery(query.frame, stream_id(output.target_id), late, checkpoint, output.starts, sides, feedback)


def _ends(store: Store, step: Step, ended: Collection[StreamName], *, flush: bool) -> Mapping[str, str] | None:
    """Where this run stops reading each source that the pipeline does not write itself, if the run closes all windows at its
    end; else None. `ended` are the streams of statements that close their windows too."""
    outside = [name for name in step.statement.sources.values() if name not in step.internal]
    sealed = step.internal <= set(ended) and all(store.streams.get(name).sealed for name in outside)
    return {str(name): str(store.cuts.tail(name)) for name in outside} if flush or sealed else None


def _analyzed(
    spark: SparkSession, store: Store, step: Step, reads: SourceReads
) -> tuple[AnalyzedQuery, LateEventsSpec | None]:
    query = analyze(spark, store, step, reads)
    return query, late_spec(store, step, query.frame)


def _refuse_other_feeders(
    store: Store,
    feeders: StreamFeeders,
    row: PipelineRow,
    output: PipelineOutput,
    step: Step,
    late: LateEventsSpec | None,
) -> None:
    """Repeat the check of `check_targets`, because another pipeline may have started meanwhile; and check the stream of
    late events, because only Spark's plan shows whether there can be any."""
    statement = step.statement
    for name in (*statement.results, *([statement.late_target] if late is not None else [])):
        stream = store.streams.find(name)
        own = stream is not None and stream_id_text(stream.id) in output.ids
        if not own and not (row.prepared and output.target_id is None):
            refuse_other_feeder(feeders, row.name, name, stream)


def _starts_over(row: PipelineRow, step: Step) -> bool:
    """True if the generation gives the statement a new checkpoint."""
    return not row.prepared and (row.restart.only is None or step.target in row.restart.only)


def _restarted_statements(row: PipelineRow, made: Mapping[str, PreparedQuery]) -> Mapping[str, PreparedQuery]:
    """The statements that the new generation starts over."""
    return {name: each for name, each in made.items() if row.restart.only is None or name in row.restart.only}


def _written_streams(made: Mapping[str, PreparedQuery]) -> list[StreamId]:
    """The streams that the statements write; those of late events only if there can be any."""
    return [stream for each in made.values() for stream in each.streams]


def _settle(store: Store, row: PipelineRow, made: Mapping[str, PreparedQuery]) -> None:
    """Make the generation's starting positions final. Idempotent: repeating it after a crash has the same result."""
    before = get(store.catalog, row.name)  # a replay's checkpoints are in another folder, which also becomes unused
    left = () if before is None else tuple(output for output in before.outputs if output.checkpoint)
    save(store.catalog, row)  # from here on the previous generation is abandoned
    if row.restart.replace:
        for stream in _written_streams(_restarted_statements(row, made)):
            store.streams.truncate(stream, store.cuts.tail(stream))
    if row.restart.only is None:  # else some statements continue from their checkpoints
        roots = (output_checkpoint(store, output.checkpoint).above(2) for output in (*left, *row.outputs))
        for root in {root.text: root for root in roots}.values():
            root.empty()
    save(store.catalog, replace(row, prepared=True))


def _reachable_checkpoint(spark: SparkSession, store: Store, output: PipelineOutput) -> CheckpointFolder:
    """The folder of the output's checkpoint. Raises InvalidArgument if Spark can't reach it."""
    place = output_checkpoint(store, output.checkpoint)
    why_not = configure_access(spark, place.text)
    if why_not is not None:
        raise InvalidArgument(
            f"Spark can't keep checkpoints in {place.for_spark}: {why_not}. Or pass checkpoints= with a folder that "
            "all machines of the job see"
        )
    return place
