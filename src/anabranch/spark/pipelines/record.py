"""The catalog's rows of pipelines: which process runs each, since when, and from where the next run continues.

Imports neither Spark nor SQL parsing, so that listing and stopping pipelines is as fast as other commands. At most one
process holds a row at a time. It writes a heartbeat each second, and reads from the row whether it is asked to stop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final, Literal, TypeAlias

from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.catalog.state.codec import stream_id, stream_id_text
from anabranch.catalog.state.pipeline import (
    PIPELINE,
    PIPELINE_RESULTS,
    PipelineHolder,
    PipelineOutput,
    Restart,
    ResultsRow,
    StoredPipeline,
    StoredState,
)
from anabranch.catalog.state.query import QUERY
from anabranch.errors import Conflict, InvalidArgument, PipelineNotFound, PipelineRunning
from anabranch.model.ids import Micros
from anabranch.model.names import check_plain_name
from anabranch.spark.pipelines.process import is_running, started_us

__all__ = [
    "PipelineHolder",
    "PipelineOutput",
    "PipelineRow",
    "Restart",
    "beat",
    "claim",
    "find",
    "finish",
    "former_feeders",
    "get",
    "record_created",
    "refuse_changed",
    "refuse_lost",
    "refuse_running",
    "remove",
    "rows",
    "save",
    "this_process",
]

HEARTBEAT_S: Final = 1.0
LEASE_US: Final = 30_000_000  # a holder whose last heartbeat is older has lost the row

State: TypeAlias = StoredState | Literal["lost"]


class PipelineRow(StoredPipeline):
    """A stored pipeline, and what its row says about its state now."""

    __slots__ = ()

    @classmethod
    def of(cls, stored: StoredPipeline) -> PipelineRow:
        """The row of a stored pipeline."""
        return cls(**{each.name: getattr(stored, each.name) for each in fields(stored)})

    def alive(self, now: int) -> bool:
        """True if the pipeline is taken to be running: its heartbeat is recent, and its process exists (checked only if
        it runs on this host)."""
        if self.holder is None or self.state != "running" or now - self.heartbeat_at > LEASE_US:
            return False
        return self.holder.host != socket.gethostname() or is_running(self.holder.pid, self.holder.started_us)

    def state_at(self, now: int) -> State:
        """`running`, `stopped`, `failed`, or `lost`: its process ended without updating the row."""
        return "lost" if self.state == "running" and not self.alive(now) else self.state

    def as_json(self, now: int) -> dict[str, Any]:
        """The row as a JSON object, with the state as of `now`."""
        return asdict(self) | {"state": self.state_at(now)}


def this_process(token: str) -> PipelineHolder:
    """This process as a holder."""
    return PipelineHolder(os.getpid(), socket.gethostname(), token, started_us(os.getpid()))


# reading


def rows(catalog: Catalog) -> list[PipelineRow]:
    """All pipelines by name."""
    with catalog.reading() as txn:
        return [PipelineRow.of(stored) for _, stored in txn.states(PIPELINE)]


def get(catalog: Catalog, name: str) -> PipelineRow | None:
    """One pipeline, or None."""
    with catalog.reading() as txn:
        return _find(txn, name)


def find(catalog: Catalog, name: str) -> PipelineRow:
    """One pipeline. Raises PipelineNotFound."""
    with catalog.reading() as txn:
        return _need(txn, name)


def former_feeders(catalog: Catalog) -> dict[str, str]:
    """The names of deleted pipelines by the ids of the streams that they left results in, as `stream_id_text` writes
    them."""
    with catalog.reading() as txn:
        return {stream_id_text(stream): left.pipeline for stream, left in txn.states(PIPELINE_RESULTS)}


# during a run


def claim(
    catalog: Catalog,
    name: str,
    text: str,
    outputs: Sequence[PipelineOutput],
    holder: PipelineHolder,
    *,
    now: int,
    restart: Restart | None = None,
    fenced: str | None = None,
    epoch: int | None = None,
) -> PipelineRow:
    """Take the pipeline for `holder`, creating its row if there is none. A run whose token begins with `fenced` loses
    the row, even while it is alive. Returns the row. `epoch` is the one in which the host of this run has the deployed
    query of this name; raises Conflict if another host has taken the query since.

    With `restart` a new generation begins. The generation is stored only when the returned row is saved: if its
    preparation fails, the next run continues with the previous generation. Raises PipelineRunning while another process
    holds the row, InvalidArgument if the statements are not those of its checkpoints or the name is invalid.
    """
    check_name(name)
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        if epoch is not None:
            _refuse_taken(txn, name, epoch)
        found = _find(txn, name)
        row = PipelineRow(name, text, (), 1, False, Restart(), "running", now, now, now) if found is None else found
        if found is not None:
            refuse_running(found, now, fenced)
        row = replace(
            row,
            state="running",
            started_at=now,
            heartbeat_at=now,
            ended_at=None,
            holder=holder,
            stop_requested=False,
            error=None,
            progress=(),
        )
        kept = {output.target: output for output in row.outputs}
        wanted = replace(row, text=text, outputs=tuple(_with_ids(new, kept.get(new.target)) for new in outputs))
        if restart is not None:
            _put(txn, row if row.prepared else wanted)
            generation = row.generation if found is None else row.generation + 1
            wanted = replace(wanted, outputs=tuple(_started_over(row, new, restart) for new in wanted.outputs))
            return replace(wanted, generation=generation, prepared=False, restart=restart)
        if row.prepared:
            refuse_changed(row, outputs, deployed=epoch is not None)
            continued = [
                replace(new, checkpoint=kept[new.target].checkpoint, starts=kept[new.target].starts)
                for new in wanted.outputs
            ]
            wanted = replace(wanted, outputs=tuple(continued))
        _put(txn, wanted)
    return wanted


def _refuse_taken(txn: Reading, name: str, epoch: int) -> None:
    # Without this check, a driver that was suspended for a while would take the pipeline from a newer driver, which may
    # have removed the checkpoints that the suspended driver would continue from.
    query = txn.state(QUERY, name)
    if query is None or query.epoch != epoch:
        raise Conflict(f"query '{name}' is no longer held by the host of this run: another one has taken it")


def _started_over(row: PipelineRow, new: PipelineOutput, restart: Restart) -> PipelineOutput:
    """The output in the new generation: without a checkpoint if its statement starts over, else with its present
    one."""
    if restart.only is None or new.target in restart.only:
        return new
    before = next((each for each in row.outputs if each.target == new.target), None)
    if before is None or not before.checkpoint:
        raise InvalidArgument(f"the statement for {new.target} can't go on: it has no checkpoint")
    return replace(new, checkpoint=before.checkpoint, starts=before.starts)


def _with_ids(new: PipelineOutput, before: PipelineOutput | None) -> PipelineOutput:
    """`new` with the stream ids of the same output in the previous run, if there was one."""
    if before is None:
        return new
    return replace(
        new,
        target_id=before.target_id,
        late_id=before.late_id,
        side_ids=_known_ids(new.sides, before.sides, before.side_ids),
        feedback_ids=_known_ids(new.feedback, before.feedback, before.feedback_ids),
    )


def _known_ids(names: Sequence[str], before: Sequence[str], ids: Sequence[str]) -> tuple[str, ...]:
    """The ids of streams that had these names `before`; none if one of them is not known."""
    known = dict(zip(before, ids, strict=False))
    return tuple(known[name] for name in names) if all(name in known for name in names) else ()


def save(catalog: Catalog, row: PipelineRow) -> None:
    """Store the holder's changes; ids in `made` are only added. Raises Conflict if the holder lost the row."""
    with catalog.writing(f"{PIPELINE.name} {row.name}") as txn:
        held = _row_of_holder(txn, row.name, row.holder)
        _put(
            txn,
            replace(
                row,
                stop_requested=held.stop_requested,
                heartbeat_at=held.heartbeat_at,
                progress=held.progress,
                made=_union(held.made, row.made),
            ),
        )


def record_created(catalog: Catalog, name: str, holder: PipelineHolder | None, made: Sequence[str]) -> None:
    """Add the ids of streams that the holder created to `made`. Raises Conflict if the holder lost the row."""
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        row = _row_of_holder(txn, name, holder)
        _put(txn, replace(row, made=_union(row.made, made)))


def _union(known: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*known, *more]))


def beat(
    catalog: Catalog, name: str, holder: PipelineHolder, *, now: int, progress: Sequence[Mapping[str, Any]] = ()
) -> bool:
    """Write the holder's heartbeat and progress; True if it is asked to stop. Raises Conflict if it lost the row."""
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        row = _row_of_holder(txn, name, holder)
        _put(txn, replace(row, heartbeat_at=now, progress=tuple(progress) or row.progress))
    return row.stop_requested


def finish(
    catalog: Catalog,
    name: str,
    holder: PipelineHolder,
    *,
    now: int,
    error: str | None = None,
    progress: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Release the row as stopped, or with `error` as failed. Does nothing if the holder lost the row."""
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        try:
            row = _row_of_holder(txn, name, holder)
        except Conflict:
            return
        state: StoredState = "stopped" if error is None else "failed"
        _put(
            txn,
            replace(
                row,
                state=state,
                ended_at=now,
                heartbeat_at=now,
                holder=None,
                stop_requested=False,
                error=error,
                progress=tuple(progress) or row.progress,
            ),
        )


def remove(catalog: Catalog, name: str, holder: PipelineHolder | None = None, *, now: int) -> PipelineRow | None:
    """Remove the row, as its `holder` or (None) as another process. Without `holder`, record which streams hold its
    results. Returns the row as it was; None if the holder lost it. Raises PipelineNotFound, and without `holder`
    PipelineRunning."""
    # Recording the results reads the results of all pipelines, so that transaction has no subject.
    with catalog.writing(None if holder is None else f"{PIPELINE.name} {name}") as txn:
        row = _need(txn, name)
        if holder is None:
            refuse_running(row, now)
            _note_results(txn, row, now)
        elif row.holder != holder:
            return None
        txn.drop_state(PIPELINE, name)
    return row


def _note_results(txn: Writing, row: PipelineRow, now: int) -> None:
    """Record the streams of a pipeline's results, and forget those that no longer exist."""
    for stream, _ in list(txn.states(PIPELINE_RESULTS)):
        if txn.stream(stream) is None:
            txn.drop_state(PIPELINE_RESULTS, stream)
    for output in row.outputs:
        for _, known in output.results:
            if known is not None and txn.stream(stream_id(known)) is not None:
                txn.put_state(PIPELINE_RESULTS, stream_id(known), ResultsRow(row.name, Micros(now)))


def refuse_lost(name: str, token: str, txn: Reading, now: Micros) -> None:
    """Raise Conflict unless the run with this token holds the pipeline. Called in each transaction that publishes results,
    so that a driver that was considered dead publishes nothing more."""
    del now
    row = _find(txn, name)
    if row is None or row.holder is None or row.holder.token != token:
        raise Conflict(f"pipeline '{name}' is no longer held by this run, so its results are not published")


# from other processes


def request_stop(catalog: Catalog, name: str, *, now: int) -> PipelineRow:
    """Ask the process that runs the pipeline to stop; if that process is gone, mark the pipeline as stopped. Returns
    the row. Raises PipelineNotFound."""
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        row = _need(txn, name)
        if row.alive(now):
            row = replace(row, stop_requested=True)
        elif row.state == "running":
            row = replace(row, state="stopped", ended_at=row.heartbeat_at, holder=None, stop_requested=False)
        _put(txn, row)
    return row


def forget_checkpoints(catalog: Catalog, name: str, *, now: int) -> PipelineRow:
    """Begin a new generation, so that the next run starts where the statements say. Returns the row as it was.

    Raises PipelineNotFound, PipelineRunning.
    """
    with catalog.writing(f"{PIPELINE.name} {name}") as txn:
        row = _need(txn, name)
        refuse_running(row, now)
        fresh = replace(row, generation=row.generation + 1, prepared=False, restart=Restart(), progress=(), error=None)
        _put(txn, replace(fresh, state="stopped", holder=None))
    return row


def check_name(name: str) -> str:
    """Return `name` if it is valid for a pipeline. Raises InvalidArgument."""
    return check_plain_name(name, "pipeline", hint="; choose one with --name")


def refuse_running(row: PipelineRow, now: int, fenced: str | None = None) -> None:
    """Raise PipelineRunning while a process holds the row, unless its run has a token that begins with `fenced`."""
    lost = row.holder is not None and fenced is not None and row.holder.token.startswith(fenced)
    if row.holder is not None and not lost and row.alive(now):
        raise PipelineRunning(row.name, row.holder.pid, row.holder.host)


def refuse_changed(row: PipelineRow, outputs: Sequence[PipelineOutput], *, deployed: bool) -> None:
    """Raise InvalidArgument if these statements are not the ones that the row's checkpoints belong to. With
    `deployed` the message names the commands of deployed queries, else those of pipelines."""
    before = {output.target: output.fingerprint for output in row.outputs}
    after = {output.target: output.fingerprint for output in outputs}
    if before == after:
        return
    changed = sorted(target for target in before.keys() | after.keys() if before.get(target) != after.get(target))
    lines = [output.line for output in outputs if output.target in changed]
    where = f" (line {lines[0]})" if lines else ""
    what = "query" if deployed else "pipeline"
    changed_since = f"the statement for {changed[0]}{where} has changed since {what} '{row.name}' wrote its checkpoints"
    if deployed:
        raise InvalidArgument(
            f"{changed_since}; start over with --from head (or another place), or keep what can be kept with: "
            f"anabranch queries upgrade {row.name}"
        )
    raise InvalidArgument(
        f"{changed_since}; start over with --from head (or another place), with: anabranch pipeline reset {row.name}, "
        "or under another --name"
    )


# rows


def _find(txn: Reading, name: str) -> PipelineRow | None:
    stored = txn.state(PIPELINE, name)
    return None if stored is None else PipelineRow.of(stored)


def _need(txn: Reading, name: str) -> PipelineRow:
    row = _find(txn, name)
    if row is None:
        raise PipelineNotFound(f"pipeline '{name}' not found; list the pipelines with: anabranch pipeline list")
    return row


def _row_of_holder(txn: Reading, name: str, holder: PipelineHolder | None) -> PipelineRow:
    row = _find(txn, name)
    if row is None or holder is None or row.holder != holder:
        raise Conflict(f"pipeline '{name}' is no longer held by this process: another one has taken it over")
    return row


def _put(txn: Writing, row: PipelineRow) -> None:
    txn.put_state(PIPELINE, row.name, row)
