"""Pipelines from outside: list them, look at one, stop one that another process runs, make one forget, delete one. Needs no
Spark."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from anabranch.errors import PipelineNotFound, PipelineRunning
from anabranch.spark import pipeline_row as row_of
from anabranch.spark.pipeline_home import LOG, log_folder, output_place
from anabranch.spark.pipeline_row import PipelineRow
from anabranch.store import Store

__all__ = ["delete", "drop_checkpoints", "find", "pipelines", "reset", "stop"]

_POLL_S: Final = 0.1
STOP_S: Final = 60.0


def pipelines(store: Store) -> list[PipelineRow]:
    """All pipelines by name, with their state as of now."""
    return row_of.rows(store.catalog)


def find(store: Store, name: str) -> PipelineRow:
    """One pipeline. Raises PipelineNotFound."""
    return row_of.find(store.catalog, name)


def stop(store: Store, name: str, *, timeout_s: float = STOP_S) -> PipelineRow:
    """Ask the process that runs it to stop, and wait until it has. One that does not run is left as it is.

    Raises PipelineNotFound, PipelineRunning if it still runs after `timeout_s` seconds.
    """
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
        except PipelineNotFound:  # an ephemeral one, which is forgotten when it ends
            return replace(row, state="stopped", holder=None)
    if row.holder == asked:  # its process was killed meanwhile
        row = row_of.request_stop(store.catalog, name, now=clock.now())
    return row


def reset(store: Store, name: str, *, drop_results: bool = False) -> tuple[str, ...]:
    """Forget its checkpoints, so that the next run begins where its statements say; results would be appended again.

    With `drop_results` the streams it wrote are deleted; returns those. Raises PipelineNotFound, PipelineRunning.
    """
    row = row_of.forget_checkpoints(store.catalog, name, now=store.runtime.clock.now())
    drop_checkpoints(store, row)
    return _drop_streams(store, row, results=True) if drop_results else ()


def delete(store: Store, name: str, *, drop_results: bool = False) -> tuple[str, ...]:
    """Forget the pipeline, and remove what it made for itself: its checkpoints and the streams of its late events. With
    `drop_results` its results too. Returns the streams that were deleted. Raises PipelineNotFound, PipelineRunning."""
    row = row_of.remove(store.catalog, name, now=store.runtime.clock.now())
    assert row is not None
    drop_checkpoints(store, row)
    return _drop_streams(store, row, results=drop_results)


def drop_checkpoints(store: Store, row: PipelineRow) -> None:
    """Remove the checkpoints of all generations, and what Spark said."""
    roots = (output_place(store, output.checkpoint).above(2) for output in row.outputs if output.checkpoint)
    for root in {root.text: root for root in roots}.values():
        with suppress(OSError):
            (log_folder(root) / LOG).unlink()
        root.remove()


def _drop_streams(store: Store, row: PipelineRow, *, results: bool) -> tuple[str, ...]:
    wanted = [name for output in row.outputs for name in (output.target if results else None, output.late)]
    dropped = [name for name in wanted if name is not None and store.streams.exists(name)]
    for each in dropped:
        store.streams.delete(each)
    return tuple(dropped)
