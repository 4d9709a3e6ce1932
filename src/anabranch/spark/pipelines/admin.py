"""Administration of pipelines from any process: list, find, stop, reset and delete them. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from anabranch.catalog.state.codec import stream_id
from anabranch.errors import NotFound, PipelineNotFound, PipelineRunning, StreamNotFound
from anabranch.model.ids import StreamId
from anabranch.model.seconds import check_seconds, wait_seconds
from anabranch.model.stream import StreamInfo
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.checkpoint_places import LOG, log_folder, output_checkpoint
from anabranch.spark.pipelines.record import PipelineRow
from anabranch.spark.pipelines.targets import StreamFeeders
from anabranch.store import Store

__all__ = ["StreamRemoval", "delete", "drop_checkpoints", "find", "pipelines", "plan_removal", "reset", "stop"]

_POLL_S: Final = 0.1
STOP_S: Final = 60.0


def pipelines(store: Store) -> list[PipelineRow]:
    """All pipelines by name, with their state as of now."""
    return row_of.rows(store.catalog)


def find(store: Store, name: str) -> PipelineRow:
    """One pipeline. Raises PipelineNotFound."""
    return row_of.find(store.catalog, name)


def stop(store: Store, name: str, *, timeout_s: float = STOP_S) -> PipelineRow:
    """Ask the process that runs the pipeline to stop, and wait until it has. Returns the row.

    A pipeline that does not run is left unchanged; one whose process is gone is marked as stopped.

    Raises PipelineNotFound, PipelineRunning if it still runs after `timeout_s` seconds, InvalidArgument.
    """
    check_seconds("timeout_s", timeout_s)
    wait_seconds("timeout_s", timeout_s)
    clock = store.runtime.clock
    deadline = clock.monotonic() + timeout_s
    row = row_of.request_stop(store.catalog, name, now=clock.now())
    asked = row.holder
    while row.holder is not None and row.holder == asked and row.alive(clock.now()):
        if clock.monotonic() > deadline:
            raise PipelineRunning(name, row.holder.pid, row.holder.host)
        store.runtime.tasks.sleep(_POLL_S)
        try:
            row = row_of.find(store.catalog, name)
        except PipelineNotFound:  # an ephemeral pipeline, which is removed when it ends
            return replace(row, state="stopped", holder=None)
    if row.holder == asked:  # its process was killed meanwhile
        row = row_of.request_stop(store.catalog, name, now=clock.now())
    return row


def reset(store: Store, name: str, *, drop_results: bool = False) -> tuple[str, ...]:
    """Remove the checkpoints, so that the next run begins where the statements say and appends results again.

    With `drop_results` also deletes the streams of its results and late events that it created; see `plan_removal`. Returns
    the names of the deleted streams. Raises PipelineNotFound, PipelineRunning.
    """
    row = row_of.forget_checkpoints(store.catalog, name, now=store.runtime.clock.now())
    drop_checkpoints(store, row)
    return _drop(store, plan_removal(store, row, results=drop_results, late=drop_results))


def delete(store: Store, name: str, *, drop_results: bool = False) -> tuple[str, ...]:
    """Remove the pipeline, its checkpoints and the streams of its late events; with `drop_results` its results too, also
    those of earlier statements and those that a replay kept.

    Streams that it did not create stay: see `plan_removal`. Returns the names of the deleted streams. Raises
    PipelineNotFound, PipelineRunning.
    """
    row = row_of.remove(store.catalog, name, now=store.runtime.clock.now())
    assert row is not None
    drop_checkpoints(store, row)
    return _drop(store, plan_removal(store, row, results=drop_results, late=True, earlier=drop_results))


@dataclass(frozen=True, slots=True)
class StreamRemoval:
    """The streams of a pipeline that deleting or resetting it removes or keeps, by their present names. `kept` maps
    each stream that stays to the reason."""

    deleted: Mapping[str, StreamId]
    kept: Mapping[str, str]


def plan_removal(store: Store, row: PipelineRow, *, results: bool, late: bool, earlier: bool = False) -> StreamRemoval:
    """The pipeline's streams that would be deleted: the streams of its `results` and of its `late` events, and the
    `earlier` ones, which its statements no longer feed, if it created them and no other pipeline feeds them. Streams are
    identified by id: renamed ones count, and a stream that merely has the name of one of them does not."""
    feeders = StreamFeeders.beside(store, row.name)
    deleted: dict[str, StreamId] = {}
    kept: dict[str, str] = {}
    for output in row.outputs:
        of_results = [(results, *each) for each in output.results]
        for wanted, name, known in (*of_results, (late, output.late, output.late_id)):
            if not wanted:
                continue
            own = store.streams.find(stream_id(known)) if known is not None and known in row.made else None
            if own is not None:
                _plan(feeders, own, deleted, kept)
            present = _stream_named(store, name)
            if present is not None and (own is None or present.id != own.id):
                kept[str(present.name)] = "this pipeline did not make it"
    if earlier:
        fed = frozenset[str]().union(*(output.ids for output in row.outputs))
        for left in (each for each in row.made if each not in fed):
            if (own := store.streams.find(stream_id(left))) is not None:
                _plan(feeders, own, deleted, kept)
    return StreamRemoval(deleted, kept)


def _plan(feeders: StreamFeeders, own: StreamInfo, deleted: dict[str, StreamId], kept: dict[str, str]) -> None:
    """Add a stream that the pipeline created to `deleted`, or to `kept` if another pipeline feeds it too."""
    other = feeders.of(None, own.id)
    if other is None:
        deleted[str(own.name)] = own.id
    else:
        kept[str(own.name)] = f"pipeline '{other}' feeds it too"


def _stream_named(store: Store, name: str | None) -> StreamInfo | None:
    try:
        return None if name is None else store.streams.find(name)
    except NotFound:  # the stream was renamed, and no other stream has this name
        return None


def _drop(store: Store, streams: StreamRemoval) -> tuple[str, ...]:
    dropped = []
    for name, stream in streams.deleted.items():
        with suppress(StreamNotFound):  # it was deleted meanwhile
            store.streams.delete(stream)
            dropped.append(name)
    return tuple(dropped)


def drop_checkpoints(store: Store, row: PipelineRow) -> None:
    """Remove the checkpoints of all generations, and Spark's log."""
    roots = (output_checkpoint(store, output.checkpoint).above(2) for output in row.outputs if output.checkpoint)
    for root in {root.text: root for root in roots}.values():
        with suppress(OSError):
            (log_folder(root) / LOG).unlink()
        root.remove()
