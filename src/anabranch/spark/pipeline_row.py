"""Pipelines as rows of the catalog: who runs which, since when, and from where it goes on.

Knows neither Spark nor SQL, so that listing and stopping pipelines is as fast as any other verb. A row is held by at
most one process at a time: it writes a heartbeat each second, and reads there whether somebody asked it to stop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from anabranch.catalog.port import Catalog, Checkpointed, Reading, Writing
from anabranch.errors import Conflict, InvalidArgument, PipelineNotFound, PipelineRunning
from anabranch.model.names import StreamName

__all__ = [
    "Holder",
    "Output",
    "PipelineRow",
    "Restart",
    "beat",
    "claim",
    "find",
    "finish",
    "remove",
    "rows",
    "save",
    "this_process",
]

KIND: Final = "pipeline"
HEARTBEAT_S: Final = 1.0
LEASE_US: Final = 30_000_000  # a holder that has not written its heartbeat for so long has lost the row

State = Literal["running", "stopped", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that runs a pipeline. `token` is new for every run."""

    pid: int
    host: str
    token: str


@dataclass(frozen=True, slots=True)
class Output:
    """One statement, as the row keeps it. `fingerprint` says what its checkpoint was made for; `starts` where its
    first batch began, as a cut's text for each source; `checkpoint` is a folder below the store's."""

    target: str
    late: str | None
    sources: tuple[str, ...]
    line: int
    fingerprint: str
    checkpoint: str = ""
    starts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restart:
    """Where a new generation of checkpoints begins: `places` as texts (none: where the statements say), times `by`
    append or event time, and whether the results so far are truncated first."""

    places: tuple[str, ...] = ()
    by: str = "append"
    replace: bool = False


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline. `prepared` is True once the generation's checkpoints may exist: from then on its statements are
    fixed. `progress` holds one mapping for each statement, as of the last heartbeat. Times in µs."""

    name: str
    text: str
    outputs: tuple[Output, ...]
    generation: int
    prepared: bool
    restart: Restart
    state: State
    created_at: int
    started_at: int
    heartbeat_at: int
    ended_at: int | None = None
    holder: Holder | None = None
    stop_requested: bool = False
    error: str | None = None
    progress: tuple[Mapping[str, Any], ...] = ()

    def alive(self, now: int) -> bool:
        """True while its holder can be taken to be at work."""
        if self.holder is None or self.state != "running" or now - self.heartbeat_at > LEASE_US:
            return False
        return self.holder.host != socket.gethostname() or _exists(self.holder.pid)

    def state_at(self, now: int) -> State:
        """`running`, `stopped`, `failed`, or `lost`: its process ended without saying so."""
        return "lost" if self.state == "running" and not self.alive(now) else self.state

    def as_json(self, now: int) -> dict[str, Any]:
        """All of it for a program, with the state as of `now`."""
        return asdict(self) | {"state": self.state_at(now)}


def this_process(token: str) -> Holder:
    """The holder that this process is."""
    return Holder(os.getpid(), socket.gethostname(), token)


# reading


def rows(catalog: Catalog) -> list[PipelineRow]:
    """All pipelines by name."""
    with catalog.reading() as txn:
        return [_from_json(piece.value) for piece in txn.pieces(KIND)]


def find(catalog: Catalog, name: str) -> PipelineRow:
    """One pipeline. Raises PipelineNotFound."""
    with catalog.reading() as txn:
        return _need(txn, name)


# a run


def claim(
    catalog: Catalog,
    name: str,
    text: str,
    outputs: Sequence[Output],
    holder: Holder,
    *,
    now: int,
    restart: Restart | None = None,
) -> PipelineRow:
    """Take the pipeline for `holder`, creating its row if there is none.

    With `restart` a new generation begins, of which the catalog learns when the row returned is saved: where it can't be
    prepared, the next run goes on with the one before. Raises PipelineRunning while another process holds it,
    InvalidArgument where the statements are not those of its checkpoints.
    """
    check_name(name)
    with catalog.writing(f"{KIND} {name}") as txn:
        piece = txn.piece(KIND, name)
        row = PipelineRow(name, text, (), 1, False, Restart(), "running", now, now, now)
        if piece is not None:
            row = _from_json(piece.value)
            _refuse_running(row, now)
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
        wanted = replace(row, text=text, outputs=tuple(outputs))
        if restart is not None:
            _put(txn, row if row.prepared else wanted)
            generation = row.generation if piece is None else row.generation + 1
            return replace(wanted, generation=generation, prepared=False, restart=restart)
        if row.prepared:
            _refuse_changed(row, outputs)
            kept = {output.target: output for output in row.outputs}
            goes_on = [
                replace(new, checkpoint=kept[new.target].checkpoint, starts=kept[new.target].starts) for new in outputs
            ]
            wanted = replace(wanted, outputs=tuple(goes_on))
        _put(txn, wanted)
    return wanted


def save(catalog: Catalog, row: PipelineRow) -> None:
    """Store what its holder changed. Raises Conflict if it is the holder's no more."""
    with catalog.writing(f"{KIND} {row.name}") as txn:
        held = _held(txn, row.name, row.holder)
        _put(
            txn,
            replace(row, stop_requested=held.stop_requested, heartbeat_at=held.heartbeat_at, progress=held.progress),
        )


def beat(catalog: Catalog, name: str, holder: Holder, *, now: int, progress: Sequence[Mapping[str, Any]] = ()) -> bool:
    """Say that the holder is at work; True if somebody asks it to stop. Raises Conflict if it is its no more."""
    with catalog.writing(f"{KIND} {name}") as txn:
        row = _held(txn, name, holder)
        _put(txn, replace(row, heartbeat_at=now, progress=tuple(progress) or row.progress))
    return row.stop_requested


def finish(
    catalog: Catalog,
    name: str,
    holder: Holder,
    *,
    now: int,
    error: str | None = None,
    progress: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Give the pipeline back. Nothing happens where it is the holder's no more."""
    with catalog.writing(f"{KIND} {name}") as txn:
        try:
            row = _held(txn, name, holder)
        except Conflict:
            return
        state: State = "stopped" if error is None else "failed"
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


def remove(catalog: Catalog, name: str, holder: Holder | None = None, *, now: int) -> PipelineRow | None:
    """Forget the pipeline, as its `holder` or from outside. Returns the row as it was; None where it is the holder's no
    more. Raises PipelineNotFound, PipelineRunning."""
    with catalog.writing(f"{KIND} {name}") as txn:
        row = _need(txn, name)
        if holder is None:
            _refuse_running(row, now)
        elif row.holder != holder:
            return None
        txn.drop_piece(KIND, name)
    return row


# from outside


def request_stop(catalog: Catalog, name: str, *, now: int) -> PipelineRow:
    """Ask the process that runs it to stop. One whose process is gone is marked as stopped. Raises PipelineNotFound."""
    with catalog.writing(f"{KIND} {name}") as txn:
        row = _need(txn, name)
        if row.alive(now):
            row = replace(row, stop_requested=True)
        elif row.state == "running":
            row = replace(row, state="stopped", ended_at=row.heartbeat_at, holder=None, stop_requested=False)
        _put(txn, row)
    return row


def forget_checkpoints(catalog: Catalog, name: str, *, now: int) -> PipelineRow:
    """Begin a new generation, so that the next run starts where its statements say. Returns the row as it was.

    Raises PipelineNotFound, PipelineRunning.
    """
    with catalog.writing(f"{KIND} {name}") as txn:
        row = _need(txn, name)
        _refuse_running(row, now)
        fresh = replace(row, generation=row.generation + 1, prepared=False, restart=Restart(), progress=(), error=None)
        _put(txn, replace(fresh, state="stopped", holder=None))
    return row


def check_name(name: str) -> str:
    """Return `name` if a pipeline can be called so. Raises InvalidArgument."""
    try:
        StreamName.parse(f"pipeline/{name}")
    except InvalidArgument as exc:
        raise InvalidArgument(
            f"'{name}' is no name for a pipeline: letters, digits, '_', '-' and '.'; give another with --name"
        ) from exc
    return name


def _refuse_running(row: PipelineRow, now: int) -> None:
    if row.holder is not None and row.alive(now):
        raise PipelineRunning(row.name, row.holder.pid, row.holder.host)


def _refuse_changed(row: PipelineRow, outputs: Sequence[Output]) -> None:
    before = {output.target: output.fingerprint for output in row.outputs}
    after = {output.target: output.fingerprint for output in outputs}
    if before == after:
        return
    changed = sorted(target for target in before.keys() | after.keys() if before.get(target) != after.get(target))
    lines = [output.line for output in outputs if output.target in changed]
    where = f" (line {lines[0]})" if lines else ""
    raise InvalidArgument(
        f"the statement for {changed[0]}{where} is not the one that pipeline '{row.name}' has checkpoints of; begin anew "
        f"with --from head (or another place), with: anabranch pipeline reset {row.name}, or under another --name"
    )


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# rows as JSON


def _need(txn: Reading, name: str) -> PipelineRow:
    piece = txn.piece(KIND, name)
    if piece is None:
        raise PipelineNotFound(f"there is no pipeline '{name}'; list them with: anabranch pipeline list")
    return _from_json(piece.value)


def _held(txn: Reading, name: str, holder: Holder | None) -> PipelineRow:
    piece = txn.piece(KIND, name)
    row = None if piece is None else _from_json(piece.value)
    if row is None or holder is None or row.holder != holder:
        raise Conflict(f"pipeline '{name}' is no longer held by this process: another one has taken it over")
    return row


def _put(txn: Writing, row: PipelineRow) -> None:
    txn.put_piece(Checkpointed(KIND, row.name, asdict(row)))


def _from_json(value: Mapping[str, Any]) -> PipelineRow:
    parts = dict(value)
    parts["outputs"] = tuple(Output(**(each | {"sources": tuple(each["sources"])})) for each in parts["outputs"])
    parts["restart"] = Restart(**(parts["restart"] | {"places": tuple(parts["restart"]["places"])}))
    parts["holder"] = None if parts["holder"] is None else Holder(**parts["holder"])
    parts["progress"] = tuple(parts["progress"])
    return PipelineRow(**parts)
