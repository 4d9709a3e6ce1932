"""Group commit: batches that arrive during a commit form the next commit. Any free thread may run a commit."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, AppendUncertain, Closed, StoreUnavailable
from anabranch.log.commit import Committer, EncodedCommit, Outcome, RoutedBatch
from anabranch.log.prewrite import PrewrittenMessage
from anabranch.model.ids import Micros, WriterId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock, Task

_IDLE_POLLS_MAX = 50  # polls without a commit, after which the guard sleeps until it is woken
_ATTEMPTS_MAX = 100  # to finish one commit; a commit that can never be finished must not block the others


class AppendSource(Protocol):
    """A source of events to append: a writer."""

    def take(self, bytes_max: int) -> list[RoutedBatch]:
        """Returns the next batches in order, about `bytes_max` bytes in total, or none for now. Called by one thread at
        a time. Raises nothing of its own: events that can't be made into a batch are refused at once."""

    def restore(self) -> None:
        """Takes back what the last `take` returned or was about to return, because it or its caller was interrupted.
        None of these batches is settled. May itself be interrupted, and is then called again."""

    @property
    def pending_bytes(self) -> int:
        """About how many bytes wait to be taken."""


class _WakeUp:
    """Wakes one task. If no task waits, the next one that waits returns at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.tasks.condition()
        self._is_set = False

    def set(self) -> None:
        with self._changed:
            self._is_set = True
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Returns False if it was not woken: after `timeout_s` seconds, or on a spurious wake-up."""
        with self._changed:
            if not self._is_set:
                self._changed.wait(timeout_s)
            woken, self._is_set = self._is_set, False
            return woken


class _Commit:
    """The state of one commit from its beginning to its end. The thread that holds `lock` runs the commit. If no thread
    holds `lock`, the thread that held it was interrupted, and any thread may continue the commit.

    Each step ends with one assignment that records it, and each step may be repeated. So a step that was interrupted
    anywhere is run again. Batches may be settled twice, too.
    """

    __slots__ = ("attempts", "batches", "began_at", "encoded", "gathered", "lock", "outcomes", "sent", "sources")

    def __init__(self, lock: Lock, began_at: Micros | None) -> None:
        """`began_at` is None if the commit's tracing span is not recorded."""
        self.lock = lock
        self.began_at = began_at
        self.attempts = 0
        self.sources: dict[int, AppendSource] | None = None  # those asked for batches
        self.batches: list[RoutedBatch] = []
        self.gathered = False  # all batches are gathered
        self.encoded: EncodedCommit | None = None
        self.sent = False  # the catalog may have decided already
        self.outcomes: list[Outcome] | None = None


class Appender:
    """The only place in a process where commits begin.

    A commit is a step: gather, encode and write the blob, then, in the order of gathering, have the catalog decide.
    A step is run by a background task or by the caller that waits for its result, so a lone append needs no hand-over
    between threads. Large commits overlap: the next blob is encoded and written while the previous one syncs.

    A caller that waited for the last event is expected to wait for the next one too. Waking a task for it would only
    make the task compete with that caller for the interpreter. So meanwhile a single task, the guard, checks every
    `limits.UNAWAITED_COMMIT_DELAY_US_MAX` for events that no caller waits for.

    An exception may be raised in the thread that runs a commit, between any two of its instructions: by a signal
    handler, or by another thread. It propagates to that thread's caller at once. The next caller, or a background
    task, finishes the interrupted commit.
    """

    def __init__(self, committer: Committer, runtime: Runtime, *, committed: Callable[[], None]) -> None:
        self._committer = committer
        self._runtime = runtime
        self._settings = runtime.settings
        self._in_flight_max = runtime.settings.commits_in_flight_max or limits.COMMITS_IN_FLIGHT_MAX
        self._committed = committed
        self._changed = runtime.tasks.condition()
        self._sources: dict[int, AppendSource] = {}  # in order of arrival
        self._commits: deque[_Commit] = deque()  # under way, in order of gathering; only the last one may still gather
        self._closed = False
        self._workers: list[Task] = []
        self._lost = 0  # workers that ended too soon
        self._idle: list[_WakeUp] = []  # of workers that have nothing to do
        self._callers_commit = False  # callers run their commits themselves; then one worker is busy or is the guard
        self._has_guard = False
        self._idle_polls = 0  # polls of the guard since the last commit

    def offer(self, source: AppendSource) -> None:
        """Queues the source to be asked for batches. Cheap if it is queued already. Raises Closed."""
        with self._changed:
            if self._closed:
                raise Closed("store")
            self._add_source(source)
            if not self._callers_commit or source.pending_bytes >= self._settings.pipeline_bytes_min:
                self._wake_worker()
            while len(self._workers) - self._lost < self._in_flight_max:
                self._workers.append(self._runtime.tasks.spawn(f"append-{len(self._workers)}", self._run_worker))

    def requeue(self, source: AppendSource) -> None:
        """Queues a source again that held its batches back. Works while closing too, since these batches were
        accepted."""
        with self._changed:
            self._add_source(source)
            self._wake_worker()

    def prewrite(self, batch: pa.RecordBatch, schema: StreamSchema, writer: WriterId) -> PrewrittenMessage:
        """See `Committer.prewrite`. Runs in the caller's thread, so that no commit waits for it."""
        return self._committer.prewrite(batch, schema, writer)

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Commits, or waits for threads that do, until `done()`. Returns False after `timeout_s` seconds, or once
        closed."""
        try:
            return self._wait(done, timeout_s)
        finally:
            if self._sources:  # queued while this caller was committing; later arrivals wake a worker themselves
                with self._changed:
                    self._wake_worker()

    def _wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else self._runtime.clock.monotonic() + timeout_s
        while not done():
            if self._step():
                self._leave_to_callers()
                continue
            with self._changed:
                if done():
                    return True
                if self._closed and not (self._commits or self._sources):
                    return False
                left = None if deadline is None else deadline - self._runtime.clock.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._has_work():
                    self._changed.wait(left)
        return True

    def close(self) -> None:
        """Commits what is queued, then stops the tasks. May be called again, to finish the work after Ctrl-C."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._wake_worker()
        while self._step():
            pass
        for worker in self._workers:
            worker.join(limits.TASK_END_S)

    # the work

    def _run_worker(self) -> None:
        try:
            self._work_until_closed()
        except BaseException:  # thrown into this thread from outside: the next `offer` starts another worker
            self._lost += 1
            raise

    def _work_until_closed(self) -> None:
        wake_up = _WakeUp(self._runtime)
        while True:
            if self._step():
                self._callers_commit = False
                continue
            with self._changed:
                if self._has_work():
                    continue
                if self._closed and not self._sources:
                    return
                self._idle.append(wake_up)
                guard = self._callers_commit and not self._has_guard
                self._has_guard |= guard
            woken = wake_up.wait(limits.UNAWAITED_COMMIT_DELAY_US_MAX / 1e6 if guard else None)
            with self._changed:
                if not woken and wake_up in self._idle:
                    self._idle.remove(wake_up)
                if guard:
                    self._has_guard = False
                    self._idle_polls += 1
                    self._callers_commit &= self._idle_polls < _IDLE_POLLS_MAX

    def _leave_to_callers(self) -> None:
        self._idle_polls = 0
        if not self._callers_commit:
            with self._changed:
                self._callers_commit = True
                if self._idle and not self._has_guard:
                    self._idle.pop().set()  # to become the guard

    def _wake_worker(self) -> None:
        """Wakes one worker if there is something for it to do; wakes all of them on closing. Needs the lock.

        Only one: a second would compete with the caller, which often waits for the result and so runs the commit
        itself.
        """
        while self._idle and (self._closed or self._has_work()):
            self._idle.pop().set()
            if not self._closed:
                return

    def _has_work(self) -> bool:
        """True if a step would find something to do now. Needs the condition's lock."""
        return self._may_gather() or self._abandoned_commit() is not None

    def _abandoned_commit(self) -> _Commit | None:
        """The first commit that no thread runs. Needs the condition's lock."""
        for commit in self._commits:
            if not commit.lock.locked():
                return commit
        return None

    def _may_gather(self) -> bool:
        """True if a commit may begin now. Needs the condition's lock."""
        if not self._sources:
            return False
        if not self._commits:
            return True
        if not self._commits[-1].gathered or len(self._commits) >= self._in_flight_max:
            return False
        # A second commit in parallel with the one under way pays off only if there is enough to write.
        return sum(source.pending_bytes for source in self._sources.values()) >= self._settings.pipeline_bytes_min

    def _step(self) -> bool:
        """Runs one commit: an abandoned one, else a new one. Returns False if there is none to run."""
        try:
            with self._changed:
                commit = self._abandoned_commit()
                if commit is None:
                    if not self._may_gather():
                        return False
                    tracing = self._runtime.tracing
                    began_at = None if tracing is None else tracing.now()
                    commit = _Commit(self._runtime.tasks.lock(), began_at)
                    self._commits.append(commit)
            self._run(commit)
            return True
        except BaseException:  # thrown in from outside: a background task continues the commit
            with self._changed:
                self._changed.notify_all()
                self._wake_worker()
            raise

    def _run(self, commit: _Commit) -> None:
        """Runs a commit from its current state to its end. Does nothing if it is over."""
        with commit.lock:
            if commit not in self._commits:
                return
            commit.attempts += 1
            if commit.attempts > _ATTEMPTS_MAX:
                self._refuse(commit)
                return
            if not commit.gathered:
                interrupted = commit.sources is not None
                if not interrupted:
                    self._gather(commit)
                self._end_gathering(commit, interrupted=interrupted)
            if commit.gathered:
                self._finish(commit)

    def _refuse(self, commit: _Commit) -> None:
        """Ends a commit that can't be finished, so that the next ones can continue. Its batches are refused: with
        AppendUncertain if the catalog may have decided, else with StoreUnavailable."""
        what = f"the append was interrupted {_ATTEMPTS_MAX} times"
        error = AppendUncertain(what) if commit.sent else StoreUnavailable(what)
        outcomes = commit.outcomes or [error] * len(commit.batches)
        for batch, outcome in zip(commit.batches, outcomes, strict=True):
            with suppress(Exception):  # a batch that can't be settled must not keep the others waiting
                batch.settle(outcome)
        with self._changed:
            self._commits.remove(commit)
            self._changed.notify_all()

    def _gather(self, commit: _Commit) -> None:
        budget = self._settings.commit_bytes_max
        with self._changed:
            commit.sources = self._sources
            self._sources = {}
        sources = list(commit.sources.values())
        for i, source in enumerate(sources):
            if budget <= 0:
                with self._changed:
                    for later in sources[i:]:
                        self._add_source(later)
                break
            taken = source.take(budget)
            budget -= sum(part.bytes_to_write for batch in taken for part in batch.parts)
            commit.batches += taken
            if taken and source.pending_bytes:
                with self._changed:
                    self._add_source(source)

    def _end_gathering(self, commit: _Commit, *, interrupted: bool) -> None:
        """Lets a commit that has batches continue. If its gathering was interrupted, returns its batches to their
        sources."""
        if interrupted:
            assert commit.sources is not None
            for source in commit.sources.values():
                source.restore()
        with self._changed:
            if interrupted:
                for source in (commit.sources or {}).values():
                    self._add_source(source)
            if interrupted or not commit.batches:
                self._commits.remove(commit)
            else:
                commit.gathered = True
            # Without batches, the sources may have refused their events, and a caller may wait for that result.
            if self._sources or self._closed or not commit.gathered:
                self._changed.notify_all()
                self._wake_worker()

    def _add_source(self, source: AppendSource) -> None:
        self._sources[id(source)] = source

    def _finish(self, commit: _Commit) -> None:
        batches = commit.batches
        # An exception that did not recur when the step was repeated came from outside. It is raised after the commit.
        interruption: Exception | None = None
        while commit.outcomes is None and commit.encoded is None:
            try:
                commit.encoded = self._committer.prepare(batches)
            except AnabranchError as exc:
                commit.outcomes = [exc] * len(batches)
            except Exception as exc:
                if interruption is None and not isinstance(exc, MemoryError):
                    interruption = exc
                    traceback.clear_frames(exc.__traceback__)  # which may hold a statement of the catalog open
                    continue
                # Out of memory, for example: nothing was appended, and the owners of these events must be notified.
                commit.outcomes = [_with_cause(StoreUnavailable(f"the append failed: {exc!r}"), exc)] * len(batches)
                interruption = None
        self._await_turn(commit)
        while commit.outcomes is None:
            assert commit.encoded is not None
            repeated, commit.sent = commit.sent, True
            try:
                commit.outcomes = self._committer.commit(commit.encoded, repeated=repeated)
            except Exception as exc:
                if interruption is None and not isinstance(exc, MemoryError):
                    interruption = exc
                    traceback.clear_frames(exc.__traceback__)  # which may hold a statement of the catalog open
                    continue
                uncertain = AppendUncertain(f"the commit failed unexpectedly: {exc!r}")
                commit.outcomes = [_with_cause(uncertain, exc)] * len(batches)
                interruption = None
        for batch, outcome in zip(batches, commit.outcomes, strict=True):
            batch.settle(outcome)
        with self._changed:
            self._commits.popleft()
            self._changed.notify_all()
            # Otherwise the thread that ran this commit looks for the next one.
            if self._closed or self._abandoned_commit() is not None:
                self._wake_worker()
        self._committed()
        self._trace(commit)
        if interruption is not None:
            raise interruption

    def _trace(self, commit: _Commit) -> None:
        tracing = self._runtime.tracing
        if tracing is None or commit.began_at is None or commit.outcomes is None:
            return
        parts = [part for batch in commit.batches for part in batch.parts]
        tracing.commit(
            commit.began_at,
            [append for batch in commit.batches for append in batch.appends],
            units=len(commit.batches),
            events=sum(part.batch.num_rows for part in parts),
            size=sum(part.size for part in parts),
            error=next((each for each in commit.outcomes if isinstance(each, AnabranchError)), None),
        )

    def _await_turn(self, commit: _Commit) -> None:
        """Waits until all commits gathered before are over. If one of them was abandoned by its thread, runs it."""
        while True:
            with self._changed:
                first = self._commits[0]
                if first is commit:
                    return
                if first.lock.locked():
                    self._changed.wait()
                    continue
            self._run(first)


def _with_cause(error: AnabranchError, cause: Exception) -> AnabranchError:
    error.__cause__ = cause
    return error
