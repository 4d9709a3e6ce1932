"""Checks which streams a pipeline may feed: none that another pipeline feeds, none that holds the results of a deleted
pipeline, and none that was deleted and recreated since the pipeline fed it.

Imports neither Spark nor SQL parsing. These checks run before the pipeline's row is claimed, so a refused run changes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.errors import InvalidArgument, InvalidSql, NotFound, ScopeRenamed, StreamHasPipeline, StreamRenamed
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.record import PipelineOutput, PipelineRow, Restart
from anabranch.store import Store

if TYPE_CHECKING:
    from anabranch.spark.pipelines.plan import Step

__all__ = ["StreamFeeders", "check_replace", "check_sources", "check_targets", "refuse_other_feeder"]


@dataclass(frozen=True, slots=True)
class StreamFeeders:
    """The streams that other pipelines feed. `ids` maps the ids of streams that they have fed to the pipeline; `names`
    maps the targets of running pipelines that have no id yet, because this is their first run. `former` maps the ids of
    streams that hold results of a deleted pipeline to its name."""

    ids: Mapping[str, str]
    names: Mapping[str, str]
    former: Mapping[str, str]

    @classmethod
    def beside(cls, store: Store, name: str) -> StreamFeeders:
        """The streams fed by pipelines other than `name`."""
        now = store.runtime.clock.now()
        others = [row for row in row_of.rows(store.catalog) if row.name != name]
        ids = {each: row.name for row in others for output in row.outputs for each in output.ids}
        running = [row for row in others if row.alive(now)]
        begun = [(row.name, output) for row in running for output in row.outputs if output.target_id is None]
        names = {target: row for row, output in begun for target, _ in output.results}
        return cls(ids, names, row_of.former_feeders(store.catalog))

    def of(self, name: StreamName | None, stream: StreamId | None) -> str | None:
        """The pipeline that feeds a stream, given by its name, its id or both; None if none does."""
        found = None if stream is None else self.ids.get(stream_id_text(stream))
        return found or (None if name is None else self.names.get(str(name)))


def check_sources(store: Store, steps: Sequence[Step]) -> None:
    """Raise InvalidSql if a source stream that the pipeline does not write itself is missing."""
    for step in steps:
        for source in step.statement.sources.values():
            if source not in step.internal:
                try:
                    store.streams.get(source)
                except NotFound as exc:
                    raise InvalidSql(str(exc), line=step.statement.line) from exc


def check_targets(
    store: Store, name: str, row: PipelineRow | None, steps: Sequence[Step], restart: Restart | None, *, also: bool
) -> list[Step]:
    """Check that the pipeline `name` may feed its targets; `row` is its row, if it has one. Returns the steps whose
    target or late stream exists and is not one that the pipeline continues to feed: their columns must be checked
    first.

    Raises StreamHasPipeline unless `also`, InvalidSql for a target that was renamed or is written by two statements,
    InvalidArgument for one that is not the stream that the checkpoints belong to.
    """
    known = {} if row is None else {output.target: output for output in row.outputs}
    continues = row is not None and row.prepared and restart is None
    feeders = StreamFeeders.beside(store, name)
    present: list[Step] = []
    seen: dict[StreamId, StreamName] = {}
    for step in steps:
        statement, output = step.statement, known.get(step.target)
        targets = {each: _find(store, each, statement.line) for each in statement.results}
        late = _find(store, statement.late_target, statement.line) if statement.options.late else None
        for each, target in targets.items():
            if target is not None and (twin := seen.setdefault(target.id, each)) != each:
                raise InvalidSql(f"'{each}' and '{twin}' are the same stream", line=statement.line)
        if continues and output is not None:
            _refuse_replaced(store, name, output, targets, late)
        # A row of an earlier version has checkpoints but no ids: it feeds the stream that has the name.
        feeds = continues and output is not None and output.target_id is None
        for each, target in targets.items():
            if not also and not feeds and not _is_own(output, target):
                refuse_other_feeder(feeders, name, each, target)
                if statement.options.mode != "complete" and (restart is None or not restart.replace):
                    _refuse_former_results(store, feeders, name, target)
        streams = (*targets.values(), late)
        continues_there = continues and all(each is None or _is_own(output, each) for each in streams)
        if not feeds and not continues_there and any(each is not None for each in streams):
            present.append(step)
    return present


def _find(store: Store, name: StreamName, line: int) -> StreamInfo | None:
    try:
        return store.streams.find(name)
    except (StreamRenamed, ScopeRenamed) as exc:
        present = exc.name if isinstance(exc, StreamRenamed) else f"{exc.name}/{name.name}"
        raise InvalidSql(
            f"{exc}: use its present name and start over with --from, or make the former name an alias of it with: "
            f"anabranch alias {name} {present}",
            line=line,
        ) from exc


def _is_own(output: PipelineOutput | None, stream: StreamInfo | None) -> bool:
    return output is not None and stream is not None and stream_id_text(stream.id) in output.ids


def refuse_other_feeder(feeders: StreamFeeders, name: str, target: StreamName, stream: StreamInfo | None) -> None:
    """Raise StreamHasPipeline if another pipeline feeds the target of pipeline `name`."""
    other = feeders.of(target, None if stream is None else stream.id)
    if other is not None:
        raise StreamHasPipeline(str(target), other, name)


def _refuse_former_results(store: Store, feeders: StreamFeeders, name: str, target: StreamInfo | None) -> None:
    """Raise StreamHasPipeline if the target still holds results of a deleted pipeline."""
    former = None if target is None else feeders.former.get(stream_id_text(target.id))
    if target is None or former is None or store.cuts.head(target.id) == store.cuts.tail(target.id):
        return
    raise StreamHasPipeline(str(target.name), former, name, deleted=True)


def check_replace(store: Store, name: str, streams: Collection[StreamId]) -> None:
    """Raise StreamHasPipeline if results are to be replaced in streams that another pipeline feeds too."""
    feeders = StreamFeeders.beside(store, name)
    for stream in streams:
        other = feeders.of(None, stream)
        if other is not None:
            raise StreamHasPipeline(str(store.streams.get(stream).name), other, name, replace=True)


def _refuse_replaced(
    store: Store,
    name: str,
    output: PipelineOutput,
    targets: Mapping[StreamName, StreamInfo | None],
    late: StreamInfo | None,
) -> None:
    """Raise InvalidArgument if the checkpoint belongs to other streams than those that have the names now. A missing
    stream of late events is allowed and created again: those of an ephemeral pipeline are deleted automatically."""
    results = [(label, known, targets.get(StreamName.parse(label))) for label, known in output.results]
    for label, known, found in (*results, (output.late, output.late_id, late)):
        if known is None or (found is not None and stream_id_text(found.id) == known):
            continue
        before = store.streams.find(stream_id(known))
        if before is not None:
            raise InvalidArgument(
                f"'{label}' is not the stream that pipeline '{name}' wrote to: that one was renamed to '{before.name}'. Make the "
                f"name an alias of it (anabranch alias {label} {before.name}), or start over with --from head, which "
                f"feeds '{label}'"
            )
        if label != output.late or found is not None:
            raise InvalidArgument(
                f"'{label}' is not the stream that pipeline '{name}' fed: that one was deleted"
                f"{' and made again' if found is not None else ''}. Its checkpoints continue after results that no longer exist; "
                f"start over with --from head (or another place), or with: anabranch pipeline reset {name}"
            )
