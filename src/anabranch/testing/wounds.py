"""Known wounds, each of which breaks one promise of the store while its context is open. For tests of the tests: a
simulator that does not find them proves nothing. Nothing else may import this.

Each changes the real code for the whole process, the way its author might have written it by mistake.
"""

from __future__ import annotations

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
from anabranch.catalog.sqlite.append import Appending
from anabranch.catalog.sqlite.connection import Translated, open_database
from anabranch.catalog.writing import SqlWriting
from anabranch.core.decide import advance_progress, decide
from anabranch.errors import AnabranchError, AppendRefused, AppendUncertain
from anabranch.log import collect
from anabranch.log import commit as commit_module
from anabranch.log.appender import Appender
from anabranch.log.collect import _Collection
from anabranch.log.commit import Committer, Encoded, Outcome
from anabranch.log.tail import Tail
from anabranch.model.append import Appended, Batches, Commit, LogState, Part, Progress, Refusal, Refused, Unit, Verdict
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.stream import Span, StreamView
from anabranch.streams import holding, publish
from anabranch.streams.ack import ChunkState
from anabranch.streams.chunk import Piece
from anabranch.streams.courier import Courier
from anabranch.streams.create import delete_stream
from anabranch.streams.ephemeral import Holder
from anabranch.streams.manager import Streams
from anabranch.streams.temporary import Temporary
from anabranch.testing import disk
from anabranch.testing.clients import BASIC, HARVEST, HOLDERS, STORM, Cast
from anabranch.testing.faults import Action, SimCatalog
from anabranch.testing.simulation import Weather

__all__ = ["WOUNDS", "Wound"]


@dataclass(frozen=True)
class Wound:
    """`plant` is the wound while its context is open; one of `told` is what the simulator says of it. `weather`,
    `casts` and `place` make frequent what the wound needs to bleed."""

    plant: Callable[[], AbstractContextManager[None]]
    told: tuple[str, ...]
    weather: Weather = field(default_factory=dict)
    casts: Sequence[Cast] = BASIC
    place: str = "folder"

    @property
    def name(self) -> str:
        """What went wrong."""
        return self.plant.__name__


@contextmanager
def _replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---------------------------------------------------------------------- durability


def skip_the_fsync() -> AbstractContextManager[None]:
    """SQLite syncs its log at checkpoints alone."""
    real = open_database

    def careless(path: str, **options: Any) -> apsw.Connection:
        database = real(path, **options)
        database.pragma("synchronous", 1)
        return database

    return _replaced(adapter, "open_database", careless)


def skip_the_fsync_of_blobs() -> AbstractContextManager[None]:
    """A blob's bytes are left to the system to write when it likes."""
    return _replaced(disk.DiskOs, "fdatasync", lambda self, file: None)


def skip_the_fsync_of_folders() -> AbstractContextManager[None]:
    """A blob's bytes are synced, but not its name."""
    return _replaced(local, "_sync_folder", lambda folder: None)


class _Undo(Exception):
    """Rolls a transaction back."""


def acknowledge_before_commit() -> AbstractContextManager[None]:
    """The answer is worked out and given; the commit itself follows a little later."""
    commit = SimCatalog.commit

    def answer(self: SimCatalog, what: Commit) -> tuple[tuple[Verdict, ...], ...]:
        verdicts: list[tuple[Verdict, ...]] = []
        try:
            with self.inner.writing() as txn:
                verdicts += [txn.append(unit, now=what.now, blobs=what.blobs) for unit in what.units]
                raise _Undo
        except _Undo:
            pass

        def later() -> None:
            self._gate.scheduler.park("lazy", timeout=0.002, group=self._gate.group)
            with suppress(AnabranchError):
                commit(self, what)

        self._gate.scheduler.spawn("lazy", later, self._gate.group)
        return tuple(verdicts)

    return _replaced(SimCatalog, "commit", answer)


# ---------------------------------------------------------------------- the decision


def forget_the_writers_sequence() -> AbstractContextManager[None]:
    """Batches are appended whatever their numbers are."""

    def careless(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, sequence=None), *rest, **more)

    return _replaced(append, "decide", careless)


def forget_the_last_batches() -> AbstractContextManager[None]:
    """A log knows a writer's next number, but not where his last batches are."""

    def careless(progress: Progress | None, part: Part, appended: Appended) -> Progress:
        return replace(advance_progress(progress, part, appended), recent=Batches())

    return _replaced(append, "advance_progress", careless)


def decide_before_the_lock() -> AbstractContextManager[None]:
    """A writer's progress is read before the lock is granted."""

    def commit(self: SqliteCatalog, what: Commit) -> tuple[tuple[Verdict, ...], ...]:
        with self.reading() as snapshot:
            parts = [(part, part.sequence) for unit in what.units for part in unit.parts]
            stale = {(p.log, s.writer): snapshot.progress(p.log, s.writer) for p, s in parts if s is not None}
        self._runtime.tasks.sleep(0.005)
        with self._turn(), Translated(self._path):
            try:
                self._database.execute("begin immediate")
                appending = Appending(self._database, what.now, what.units, what.blobs)
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
    """A batch that landed before the seal is refused for the seal where it is asked for again, and is re-routed."""

    def sealed_first(part: Part, log: LogState | None, *rest: Any, **more: Any) -> Verdict:
        if log is not None and log.sealed:
            return Refused(Refusal.SEALED, log.length)
        return decide(part, log, *rest, **more)

    return _replaced(append, "decide", sealed_first)


def tear_units() -> AbstractContextManager[None]:
    """The parts of a unit are decided one by one."""
    whole = Appending.unit

    def torn(self: Appending, unit: Unit) -> tuple[Verdict, ...]:
        verdicts = [whole(self, Unit((part,)))[0] for part in unit.parts]
        if not any(isinstance(verdict, Refused) for verdict in verdicts):
            return tuple(verdicts)
        return tuple(each if isinstance(each, Refused) else Refused(Refusal.UNIT) for each in verdicts)

    return _replaced(Appending, "unit", torn)


def forget_the_streams_fence() -> AbstractContextManager[None]:
    """Who carries a fence that was overtaken may go on appending."""

    def careless(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, fence=None), *rest, **more)

    return _replaced(append, "decide", careless)


def forget_the_condition() -> AbstractContextManager[None]:
    """Conditional appends are made wherever the tail is."""

    def careless(part: Part, *rest: Any, **more: Any) -> Verdict:
        return decide(replace(part, expected=None), *rest, **more)

    return _replaced(append, "decide", careless)


# ---------------------------------------------------------------------- unknown outcomes and fences


def retry_blindly() -> AbstractContextManager[None]:
    """After a lost answer, simply append again."""

    def resolve(self: Committer, encoded: Encoded, units: Sequence[Unit], uncertain: AppendUncertain) -> list[Outcome]:
        again = tuple(replace(unit, parts=tuple(replace(p, sequence=None) for p in unit.parts)) for unit in units)
        return list(self._catalog.commit(Commit(again, self._runtime.clock.now(), encoded.blobs)))

    return _replaced(Committer, "_resolve", resolve)


def give_up_without_the_fence() -> AbstractContextManager[None]:
    """A commit of unknown outcome that has not landed is taken for one that never will."""

    def resolve(self: Committer, encoded: Encoded, units: Sequence[Unit], uncertain: AppendUncertain) -> list[Outcome]:
        with _replaced(commit_module, "_raise_fence", lambda txn, draft, *, now: None):
            landed = [self._landed(work, unit) for work, unit in zip(encoded.works, units, strict=True)]
        return [AppendRefused("it has not landed") if verdicts is None else verdicts for verdicts in landed]

    return _replaced(Committer, "_resolve", resolve)


def drop_fences_at_a_scale() -> AbstractContextManager[None]:
    """Who was taken over on a segment may go on appending to its successors."""
    return _replaced(SqlWriting, "inherit_fences", lambda self, log, heir: None)


def publish_without_asking() -> AbstractContextManager[None]:
    """What was published under a request id is published again."""
    publish_once = publish._publish

    def again(catalog: Any, blobs: Any, runtime: Any, publications: Any, request: Any, *rest: Any) -> bool:
        fresh = f"{request}/{runtime.ids.bits(64)}"
        return publish_once(catalog, blobs, runtime, publications, fresh, *rest)

    return _replaced(publish, "_publish", again)


# ---------------------------------------------------------------------- collection


def collect_without_the_horizon() -> AbstractContextManager[None]:
    """Files that the catalog does not list are removed however young they are."""

    def all_files(self: _Collection, prefix: str) -> Iterator[BlobInfo]:
        yield from self._blobs.list(prefix)

    return _replaced(_Collection, "_old_files", all_files)


def commit_behind_the_horizon() -> AbstractContextManager[None]:
    """A writer that was stalled may commit a blob that is gone."""

    def never(self: Appending, part: Part) -> Micros | None:
        return None

    return _replaced(Appending, "_expired", never)


class _OwnSpans:
    """A snapshot in which only one stream views logs."""

    def __init__(self, snapshot: Reading, stream: StreamId) -> None:
        self._snapshot = snapshot
        self._stream = stream

    def spans_of_log(self, log: LogId) -> list[tuple[StreamId, Span]]:
        return [(stream, span) for stream, span in self._snapshot.spans_of_log(log) if stream == self._stream]


def collect_what_copies_view() -> AbstractContextManager[None]:
    """A log is looked at through the stream that made it alone."""
    viewed = collect._viewed

    def own(snapshot: Reading, log: LogState) -> Any:
        return viewed(cast(Reading, _OwnSpans(snapshot, log.stream)), log)

    return _replaced(collect, "_viewed", own)


# ---------------------------------------------------------------------- order and wake-ups


def send_refused_events_last() -> AbstractContextManager[None]:
    """What a seal refused is re-routed behind newer events of its keys."""
    landed_all = Courier._landed_all

    def last(self: Courier) -> None:
        if not self._in_flight:
            for _, piece in self._returned:
                self._queue.append(piece)
                self._queue_bytes += piece.size
            self._returned.clear()
        landed_all(self)

    return _replaced(Courier, "_landed_all", last)


def large_events_jump_the_queue() -> AbstractContextManager[None]:
    """An event that is durable already is taken ahead of the smaller ones that were accepted before it."""
    enqueue = Courier.enqueue

    def first(self: Courier, pieces: Sequence[Piece], state: ChunkState) -> None:
        enqueue(self, pieces, state)
        with self._lock:
            for _ in [piece for piece in pieces if piece.large]:
                self._queue.rotate(1)

    return _replaced(Courier, "enqueue", first)


def look_at_a_stale_tail() -> AbstractContextManager[None]:
    """What a stream looks like is answered from memory now and then."""
    view, known = Streams.view, dict[Any, StreamView]()

    def stale(self: Streams, name: Any) -> StreamView:
        if name in known and self._runtime.ids.bits(2) == 0:
            return known[name]
        known[name] = view(self, name)
        return known[name]

    return _replaced(Streams, "view", stale)


def sleep_through_other_processes() -> AbstractContextManager[None]:
    """A following reader is not woken by what other processes commit."""
    return _replaced(Tail, "_poll", lambda self: None)


def forget_to_wake_writers() -> AbstractContextManager[None]:
    """Whoever waits for a commit that another task carries out is not told of its end."""
    carry_out = Appender._carry_out

    def silently(self: Appender, *args: Any) -> None:
        with _muted(self):
            carry_out(self, *args)

    return _replaced(Appender, "_carry_out", silently)


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
    """Whoever leaves takes the stream along, though others hold it."""

    def careless(txn: Writing, stream: StreamId, token: str, now: Micros) -> bool:
        present = txn.stream(stream)
        if present is not None:
            delete_stream(txn, present.name, now)
        return present is not None

    return _replaced(holding, "leave_holders", careless)


def forget_that_holders_go_on() -> AbstractContextManager[None]:
    """A holder is taken for dead when its first lease is over."""

    def alive(self: Holder, now: Micros) -> bool:
        return now < self.since + limits.EPHEMERAL_LEASE_US + limits.CLOCKS_DIFFER_US

    return _replaced(Holder, "alive", alive)


def forget_to_sweep() -> AbstractContextManager[None]:
    """What a killed holder held stays for ever."""
    return _replaced(Temporary, "sweep", lambda self: 0)


_LOST: Final = ("acknowledged, and not there", "is missing", "corrupt", "BlobMissing", "contiguous")
_SLOW: Final[Weather] = {"catalog.commit": {Action.DELAY_BEFORE: 0.4}}
_TWICE: Final = ("stored more than once",)

WOUNDS: Final = (
    Wound(skip_the_fsync, _LOST),
    Wound(skip_the_fsync_of_blobs, _LOST),
    Wound(skip_the_fsync_of_folders, _LOST),
    Wound(acknowledge_before_commit, ("acknowledged",)),
    Wound(forget_the_writers_sequence, _TWICE),
    Wound(forget_the_last_batches, ("refused, and yet there",)),
    Wound(decide_before_the_lock, _TWICE, {"catalog.commit": {Action.UNCERTAIN_LATE: 0.3}}),
    Wound(ask_for_the_seal_first, _TWICE, {"catalog.commit": {Action.DUPLICATE: 0.4}}),
    Wound(
        tear_units,
        ("torn atomic unit", "refused, and yet there", *_TWICE),
        _SLOW,
        STORM,
    ),
    Wound(forget_the_streams_fence, ("history: not linearizable",), casts=STORM),
    Wound(forget_the_condition, ("was to be appended at", "history: not linearizable")),
    Wound(retry_blindly, _TWICE),
    Wound(give_up_without_the_fence, ("refused, and yet there", "batches")),
    Wound(drop_fences_at_a_scale, ("out of order", "was acknowledged at", "acknowledged, and not there"), _SLOW, STORM),
    Wound(publish_without_asking, ("published twice", *_TWICE)),
    Wound(collect_without_the_horizon, ("missing",)),
    Wound(collect_what_copies_view, ("check: error", "is not what it was", "has no extent"), casts=HARVEST),
    Wound(commit_behind_the_horizon, ("missing",), {"blobs.put": {Action.STALL: 0.4}}),
    Wound(send_refused_events_last, ("out of order",), _SLOW, STORM),
    Wound(large_events_jump_the_queue, ("out of order",)),
    Wound(look_at_a_stale_tail, ("history: unseen", "history: non-monotonic", "history: not linearizable")),
    Wound(sleep_through_other_processes, ("did not see them",)),
    Wound(forget_to_wake_writers, ("does not end",)),
    Wound(leave_for_all, ("was taken away",), casts=HOLDERS),
    Wound(forget_that_holders_go_on, ("was taken away",), casts=HOLDERS),
    Wound(forget_to_sweep, ("nobody holds it",), casts=HOLDERS),
)
