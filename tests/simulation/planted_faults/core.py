"""Planted faults: known defects, each of which breaks one promise of the store while its context is open. They test the
tests: a simulator that does not find them proves nothing. Nothing outside the tests may import this.

Each changes the real code for the whole process, as its author might have written it by mistake.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import apsw

from anabranch import limits
from anabranch.blobs import local
from anabranch.blobs.port import BlobInfo
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.sqlite import adapter, append
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.sqlite.append import AppendBatch
from anabranch.catalog.sqlite.connection import TranslatedErrors, open_database
from anabranch.catalog.state.ephemeral import EPHEMERAL, Holder
from anabranch.catalog.writing import SqlWriting
from anabranch.core.decide import advance_progress, decide
from anabranch.errors import AnabranchError, AppendRefused, AppendUncertain
from anabranch.log import commit as commit_module
from anabranch.log import prewrite as ahead
from anabranch.log.appender import Appender
from anabranch.log.commit import Committer, EncodedCommit, Outcome
from anabranch.log.tail import Tail
from anabranch.log.upkeep import collect
from anabranch.log.upkeep.collect import _Collection
from anabranch.model.append import Appended, Batches, Commit, LogState, Part, Progress, Refusal, Refused, Unit, Verdict
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.stream import Span, StreamView
from anabranch.streams import publish
from anabranch.streams.ephemeral import api as ephemeral_api
from anabranch.streams.ephemeral import keep_alive
from anabranch.streams.ephemeral.api import Ephemeral
from anabranch.streams.lifecycle.create import delete_stream
from anabranch.streams.manager import Streams
from anabranch.testing.faults import Action
from anabranch.testing.faulty_ports import FaultyCatalog
from anabranch.writing import staging as stage
from anabranch.writing.acknowledgement import Acknowledgement
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.queue import WriterQueue
from tests.simulation import disk
from tests.simulation.clients import BASIC, CLOCKS, COLLECTION, EPHEMERAL_STREAMS, WRITES_AND_SCALES, ClientMix
from tests.simulation.gate import SimGate
from tests.simulation.simulation import FaultRates

__all__ = ["PLANTED_FAULTS", "PlantedFault"]


@dataclass(frozen=True)
class PlantedFault:
    """A planted fault. `plant` enables it while its context is open; the simulator must report one of `reports`.
    `fault_rates`, `mixes` and `place` make the conditions frequent in which it shows."""

    plant: Callable[[], AbstractContextManager[None]]
    reports: tuple[str, ...]
    fault_rates: FaultRates = field(default_factory=dict)
    mixes: Sequence[ClientMix] = BASIC
    place: str = "folder"

    @property
    def name(self) -> str:
        """The name of the fault."""
        return self.plant.__name__


@contextmanager
def _replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    before = vars(owner)[name]
    _check_signature(before, by)
    setattr(owner, name, by)
    try:
        yield
    finally:
        # Tasks that replace it while they run concurrently would restore what another has planted.
        left = vars(owner)[name]
        setattr(owner, name, before)
        assert left is by, f"{name} was replaced by another task meanwhile: replace it where the fault is planted"


def _check_signature(before: Any, by: Any) -> None:
    """A replacement that can't be called as the original can would fail by its signature, which proves nothing."""
    if not callable(before) or isinstance(before, type):
        return
    accepts = inspect.signature(by)
    for wanted in (lambda parameter: True, lambda parameter: parameter.default is parameter.empty):
        positional, named = [], {}
        for parameter in filter(wanted, inspect.signature(before).parameters.values()):
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                positional.append(parameter)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = parameter
        accepts.bind(*positional, **named)


# ---------------------------------------------------------------------- durability


def skip_the_fsync() -> AbstractContextManager[None]:
    """SQLite syncs its log only at checkpoints."""
    real = open_database

    def faulty(path: str, **options: Any) -> apsw.Connection:
        database = real(path, **options)
        database.pragma("synchronous", 1)
        return database

    return _replaced(adapter, "open_database", faulty)


def skip_the_fsync_of_blobs() -> AbstractContextManager[None]:
    """A blob's bytes are not synced; the system writes them at some time."""
    return _replaced(disk.DiskOs, "fdatasync", lambda self, file: None)


def skip_the_fsync_of_folders() -> AbstractContextManager[None]:
    """A blob's bytes are synced, but not its directory entry."""
    return _replaced(local, "_sync_folder", lambda folder: None)


class _Undo(Exception):
    """Rolls a transaction back."""


def acknowledge_before_commit() -> AbstractContextManager[None]:
    """The answer is computed and returned; the commit itself follows a little later."""
    commit = FaultyCatalog.commit

    def answer(self: FaultyCatalog, what: Commit) -> tuple[tuple[Verdict, ...], ...]:
        verdicts: list[tuple[Verdict, ...]] = []
        try:
            with self.inner.writing() as txn:
                verdicts += [txn.append(unit, now=what.now, blobs=what.blobs) for unit in what.units]
                raise _Undo
        except _Undo:
            pass

        gate = self._gate
        assert isinstance(gate, SimGate)

        def later() -> None:
            gate.scheduler.park("lazy", timeout=0.002, group=gate.group)
            with suppress(AnabranchError):
                commit(self, what)

        gate.scheduler.spawn("lazy", later, gate.group)
        return tuple(verdicts)

    return _replaced(FaultyCatalog, "commit", answer)


# ---------------------------------------------------------------------- the decision


def forget_the_writers_sequence() -> AbstractContextManager[None]:
    """Batches are appended whatever their sequence numbers are."""

    def faulty(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, sequence=None), *rest, **more)

    return _replaced(append, "decide", faulty)


def forget_the_last_batches() -> AbstractContextManager[None]:
    """A log knows a writer's next number, but not where its last batches are."""

    def faulty(progress: Progress | None, part: Part, appended: Appended) -> Progress:
        return replace(advance_progress(progress, part, appended), recent=Batches())

    return _replaced(append, "advance_progress", faulty)


def decide_before_the_lock() -> AbstractContextManager[None]:
    """A writer's progress is read before the lock is granted."""

    def commit(self: SqliteCatalog, what: Commit) -> tuple[tuple[Verdict, ...], ...]:
        with self.reading() as snapshot:
            parts = [(part, part.sequence) for unit in what.units for part in unit.parts]
            stale = {(p.log, s.writer): snapshot.progress(p.log, s.writer) for p, s in parts if s is not None}
        self._runtime.tasks.sleep(0.005)
        with self._exclusively(), TranslatedErrors(self._path):
            try:
                self._database.execute("begin immediate")
                appending = AppendBatch(self._database, what.now, what.units, what.blobs)
                appending._progress.update(stale)
                verdicts = tuple(appending.unit(unit) for unit in what.units)
                if appending.flush():
                    self._finish()
            finally:
                if self._database.in_transaction:
                    self._database.execute("rollback")
        return verdicts

    return _replaced(SqliteCatalog, "commit", commit)


def ask_for_the_seal_first() -> AbstractContextManager[None]:
    """A repeated batch that was appended before the seal is refused because of the seal, and is re-routed."""

    def sealed_first(part: Part, log: LogState | None, *rest: Any, **more: Any) -> Verdict:
        if log is not None and log.sealed:
            return Refused(Refusal.SEALED, log.length)
        return decide(part, log, *rest, **more)

    return _replaced(append, "decide", sealed_first)


def tear_units() -> AbstractContextManager[None]:
    """The parts of a unit are decided one by one."""
    whole = AppendBatch.unit

    def torn(self: AppendBatch, unit: Unit) -> tuple[Verdict, ...]:
        verdicts = [whole(self, Unit((part,)))[0] for part in unit.parts]
        if not any(isinstance(verdict, Refused) for verdict in verdicts):
            return tuple(verdicts)
        return tuple(each if isinstance(each, Refused) else Refused(Refusal.UNIT) for each in verdicts)

    return _replaced(AppendBatch, "unit", torn)


def forget_the_streams_fence() -> AbstractContextManager[None]:
    """A writer with an outdated fence may continue appending."""

    def faulty(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, fence=None), *rest, **more)

    return _replaced(append, "decide", faulty)


def forget_the_condition() -> AbstractContextManager[None]:
    """Conditional appends are made whatever the tail is."""

    def faulty(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, expected=None), *rest, **more)

    return _replaced(append, "decide", faulty)


# ---------------------------------------------------------------------- unknown outcomes and fences


def retry_blindly() -> AbstractContextManager[None]:
    """After a lost answer, the append is simply repeated."""

    def resolve(
        self: Committer, encoded: EncodedCommit, units: Sequence[Unit], uncertain: AppendUncertain
    ) -> list[Outcome]:
        again = tuple(replace(unit, parts=tuple(replace(p, sequence=None) for p in unit.parts)) for unit in units)
        return list(self._catalog.commit(Commit(again, self._runtime.clock.now(), encoded.blobs)))

    return _replaced(Committer, "_resolve", resolve)


@contextmanager
def give_up_without_the_fence() -> Iterator[None]:
    """A commit of unknown outcome that is not visible yet counts as failed for good."""

    def resolve(
        self: Committer, encoded: EncodedCommit, units: Sequence[Unit], uncertain: AppendUncertain
    ) -> list[Outcome]:
        landed = [self._landed(batch, unit) for batch, unit in zip(encoded.batches, units, strict=True)]
        return [AppendRefused("it has not landed") if verdicts is None else verdicts for verdicts in landed]

    # Replaced here, not in `resolve`: tasks that run it concurrently would restore what another has planted.
    fence = _replaced(commit_module, "_raise_fence", lambda txn, routed, *, now: None)
    with fence, _replaced(Committer, "_resolve", resolve):
        yield


def drop_fences_at_a_scale() -> AbstractContextManager[None]:
    """A writer that was taken over on a segment may continue appending to its successors."""
    return _replaced(SqlWriting, "copy_fences", lambda self, log, heir: None)


def publish_without_asking() -> AbstractContextManager[None]:
    """What was published under a request id is published again."""
    publish_once = publish._publish

    def again(catalog: Any, blobs: Any, runtime: Any, publications: Any, request: Any, *rest: Any) -> bool:
        fresh = f"{request}/{runtime.ids.bits(64)}"
        return publish_once(catalog, blobs, runtime, publications, fresh, *rest)

    return _replaced(publish, "_publish", again)


# ---------------------------------------------------------------------- collection


def collect_without_the_horizon() -> AbstractContextManager[None]:
    """Files that the catalog does not list are removed whatever their age."""

    def all_files(self: _Collection, prefix: str) -> Iterator[BlobInfo]:
        yield from self._blobs.list(prefix)

    return _replaced(_Collection, "_old_files", all_files)


def commit_behind_the_horizon() -> AbstractContextManager[None]:
    """A stalled writer may commit a blob that was collected."""

    def never(self: AppendBatch, part: Part) -> Micros | None:
        return None

    return _replaced(AppendBatch, "_expired", never)


class _OwnSpans:
    """A snapshot in which only one stream refers to logs."""

    def __init__(self, snapshot: Reading, stream: StreamId) -> None:
        self._snapshot = snapshot
        self._stream = stream

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        return [(stream, span) for stream, span in self._snapshot.spans_of_log(log) if stream == self._stream]


def collect_what_copies_view() -> AbstractContextManager[None]:
    """Only the spans of the stream that created a log count as references to it."""
    view_of_log = collect._view_of_log

    def own(snapshot: Reading, log: LogState) -> Any:
        return view_of_log(cast(Reading, _OwnSpans(snapshot, log.stream)), log)

    return _replaced(collect, "_view_of_log", own)


# ---------------------------------------------------------------------- order and wake-ups


def send_refused_events_last() -> AbstractContextManager[None]:
    """Events that a seal refused are re-routed after newer events of their keys."""
    continue_if_idle = WriterQueue._continue_if_idle

    def last(self: WriterQueue) -> None:
        if not self._in_flight and not self._routing:
            for _, pending in sorted(self._returned.items()):
                self._waiting.append(pending)
                self._waiting_bytes += pending.size
            self._returned.clear()
        continue_if_idle(self)

    return _replaced(WriterQueue, "_continue_if_idle", last)


def large_events_jump_the_queue() -> AbstractContextManager[None]:
    """A large event, which is durable already, is taken before smaller ones that were accepted earlier."""
    enqueue = WriterQueue.enqueue

    def first(self: WriterQueue, batches: Sequence[PendingBatch], acknowledgement: Acknowledgement) -> None:
        enqueue(self, batches, acknowledgement)
        with self._lock:
            for _ in [pending for pending in batches if pending.large]:
                self._waiting.rotate(1)

    return _replaced(WriterQueue, "enqueue", first)


def look_at_a_stale_tail() -> AbstractContextManager[None]:
    """A stream's view is sometimes taken from an outdated cache."""
    view, known = Streams.view, dict[Any, StreamView]()

    def stale(self: Streams, name: Any) -> StreamView:
        if name in known and self._runtime.ids.bits(2) == 0:
            return known[name]
        known[name] = view(self, name)
        return known[name]

    return _replaced(Streams, "view", stale)


def sleep_through_other_processes() -> AbstractContextManager[None]:
    """A following reader is not woken by commits of other processes."""
    return _replaced(Tail, "_poll", lambda self: None)


def forget_to_wake_writers() -> AbstractContextManager[None]:
    """A caller that waits for a commit by another task is not notified of its end."""
    finish = Appender._finish

    def silently(self: Appender, *args: Any) -> None:
        with _muted(self):
            finish(self, *args)

    return _replaced(Appender, "_finish", silently)


@contextmanager
def _muted(appender: Appender) -> Iterator[None]:
    notify = appender._changed.notify_all
    appender._changed.notify_all = lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        appender._changed.notify_all = notify  # type: ignore[method-assign]


# ---------------------------------------------------------------------- ephemeral streams


def leave_for_all() -> AbstractContextManager[None]:
    """A holder that leaves deletes the stream, though others hold it."""

    def faulty(txn: Writing, stream: StreamId, token: str, now: Micros) -> bool:
        present = txn.stream(stream)
        if present is not None:
            delete_stream(txn, present.name, now)
        return present is not None

    return _replaced(keep_alive, "leave_holders", faulty)


@contextmanager
def forget_that_holders_go_on() -> Iterator[None]:
    """A holder counts as dead when its first lease expires."""

    def alive(self: Holder, now: Micros) -> bool:
        return now < self.since + limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US

    def expired(txn: Reading, now: Micros) -> list[StreamId]:
        return [stream for stream, held in txn.states(EPHEMERAL) if not all(alive(each, now) for each in held.holders)]

    with _replaced(Holder, "alive", alive), _replaced(ephemeral_api, "expired_streams", expired):
        yield


def stage_by_its_own_clock() -> AbstractContextManager[None]:
    """A staged blob begins at its writer's clock, though the collector's horizon is later."""
    real = ahead.prewrite

    def faulty(*arguments: Any, not_before: int = 0, **more: Any) -> Any:
        return real(*arguments, **more)

    return _replaced(stage, "prewrite", faulty)


def judge_by_its_own_clock() -> AbstractContextManager[None]:
    """A process takes the wall time from its own clock, which may be days ahead, and not from the catalog."""
    return _replaced(SqliteCatalog, "clock", property(lambda self: self._runtime.clock))


def forget_to_sweep() -> AbstractContextManager[None]:
    """What a killed holder held is never deleted."""
    return _replaced(Ephemeral, "sweep", lambda self: 0)


_LOST: Final = ("acknowledged, and not there", "is missing", "corrupt", "BlobMissing", "contiguous")
_SLOW: Final[FaultRates] = {"catalog.commit": {Action.DELAY_BEFORE: 0.4}}
_TWICE: Final = ("stored more than once",)

PLANTED_FAULTS: Final = (
    PlantedFault(skip_the_fsync, _LOST),
    PlantedFault(skip_the_fsync_of_blobs, _LOST),
    PlantedFault(skip_the_fsync_of_folders, _LOST),
    PlantedFault(acknowledge_before_commit, ("acknowledged",)),
    PlantedFault(forget_the_writers_sequence, _TWICE),
    PlantedFault(forget_the_last_batches, ("refused, and yet there",)),
    PlantedFault(decide_before_the_lock, _TWICE, {"catalog.commit": {Action.UNCERTAIN_LATE: 0.3}}),
    PlantedFault(ask_for_the_seal_first, _TWICE, {"catalog.commit": {Action.DUPLICATE: 0.4}}),
    PlantedFault(
        tear_units,
        ("torn atomic unit", "refused, and yet there", *_TWICE),
        _SLOW,
        WRITES_AND_SCALES,
    ),
    PlantedFault(forget_the_streams_fence, ("history: not linearizable",), mixes=WRITES_AND_SCALES),
    PlantedFault(forget_the_condition, ("was to be appended at", "history: not linearizable")),
    PlantedFault(retry_blindly, _TWICE),
    PlantedFault(give_up_without_the_fence, ("refused, and yet there", "batches")),
    PlantedFault(
        drop_fences_at_a_scale,
        ("out of order", "was acknowledged at", "acknowledged, and not there"),
        _SLOW,
        WRITES_AND_SCALES,
    ),
    PlantedFault(publish_without_asking, ("published twice", *_TWICE)),
    PlantedFault(collect_without_the_horizon, ("missing",)),
    PlantedFault(collect_what_copies_view, ("check: error", "is not what it was", "has no extent"), mixes=COLLECTION),
    PlantedFault(commit_behind_the_horizon, ("missing",), {"blobs.put": {Action.STALL: 0.4}}),
    PlantedFault(send_refused_events_last, ("out of order",), _SLOW, WRITES_AND_SCALES),
    PlantedFault(large_events_jump_the_queue, ("out of order",)),
    PlantedFault(look_at_a_stale_tail, ("history: unseen", "history: non-monotonic", "history: not linearizable")),
    PlantedFault(sleep_through_other_processes, ("did not see them",)),
    PlantedFault(forget_to_wake_writers, ("does not end",)),
    PlantedFault(leave_for_all, ("was taken away",), mixes=EPHEMERAL_STREAMS),
    PlantedFault(forget_that_holders_go_on, ("was taken away",), mixes=EPHEMERAL_STREAMS),
    PlantedFault(stage_by_its_own_clock, ("though its lease held the horizon",), mixes=CLOCKS),
    PlantedFault(judge_by_its_own_clock, ("before its lease",), mixes=CLOCKS),
    PlantedFault(forget_to_sweep, ("nobody holds it",), mixes=EPHEMERAL_STREAMS),
)
