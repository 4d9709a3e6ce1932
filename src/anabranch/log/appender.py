"""Group commit: whoever has time leads. Works that arrive while a commit is under way make up the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, AppendUncertain, Closed, StoreUnavailable
from anabranch.log.ahead import Ahead
from anabranch.log.commit import Committer, Encoded, Outcome, Work
from anabranch.model.ids import WriterId
from anabranch.model.schema import StreamSchema
from anabranch.runtime.interrupts import Undisturbed
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_QUIET_MAX = 50  # then the guard goes to sleep


class Source(Protocol):
    """Something with events to append: a writer."""

    def take(self, bytes_max: int) -> list[Work]:
        """The next works in order, of about `bytes_max` in all, or none for now. Called by one thread at a time.
        Raises nothing: what can't be made a work is refused on the spot."""
        ...

    @property
    def pending_bytes(self) -> int:
        """About how many bytes wait to be taken."""
        ...


class _Bell:
    """Wakes one task. Rung while nobody waits, it is heard by who waits next."""

    def __init__(self, runtime: Runtime) -> None:
        self._changed = runtime.tasks.condition()
        self._rung = False

    def ring(self) -> None:
        with self._changed:
            self._rung = True
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """False if it was not rung, after `timeout_s` seconds or for no reason."""
        with self._changed:
            if not self._rung:
                self._changed.wait(timeout_s)
            rung, self._rung = self._rung, False
            return rung


class Appender:
    """The one place of a process where commits begin.

    A commit is a step: gather, encode and write the blob, then, in the order of gathering, have the catalog decide.
    A step is done by a background task or by the caller who waits for its result, so that a lone append needs no
    hand-over between threads. Big commits overlap: the next blob is encoded and written while the last one syncs.

    A caller who waited for the last event is expected to wait for the next one too. Waking a task for it would only
    have it compete with that caller for the interpreter, so meanwhile one task just looks after what nobody waited
    for, every `limits.UNAWAITED_US`.
    """

    def __init__(self, committer: Committer, runtime: Runtime, *, committed: Callable[[], None]) -> None:
        self._committer = committer
        self._runtime = runtime
        self._settings = runtime.settings
        self._in_flight_max = runtime.settings.commits_in_flight_max or limits.COMMITS_IN_FLIGHT_MAX
        self._committed = committed
        self._changed = runtime.tasks.condition()
        self._ready: deque[Source] = deque()
        self._queued: set[int] = set()
        self._gathering = False
        self._in_flight = 0
        self._tickets = 0
        self._turn = 0
        self._closed = False
        self._workers: list[Task] = []
        self._idle: list[_Bell] = []  # of workers that have nothing to do
        self._awaited = False  # callers do their commits themselves; then a worker is at work or on guard
        self._guarded = False
        self._quiet = 0  # looks of the guard since the last commit

    def offer(self, source: Source) -> None:
        """Have the source asked for works. Cheap where it is queued already. Raises Closed."""
        with Undisturbed(), self._changed:
            if self._closed:
                raise Closed("store")
            self._enqueue(source)
            if not self._awaited or source.pending_bytes >= self._settings.pipeline_bytes_min:
                self._call()
            if not self._workers:
                for number in range(self._in_flight_max):
                    self._workers.append(self._runtime.tasks.spawn(f"append-{number}", self._work))

    def again(self, source: Source) -> None:
        """Have a source asked again that held its works back; also while closing, since they were accepted."""
        with Undisturbed(), self._changed:
            self._enqueue(source)
            self._call()

    def ahead(self, batch: pa.RecordBatch, schema: StreamSchema, writer: WriterId) -> Ahead:
        """See `Committer.ahead`: in the caller's thread, so that no commit waits for it."""
        return self._committer.ahead(batch, schema, writer)

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Commit, or wait for those who do, until `done()`; False after `timeout_s` seconds, or once closed."""
        try:
            return self._wait(done, timeout_s)
        finally:
            if self._ready:  # it came while this caller was at it; who comes later calls by himself
                with Undisturbed(), self._changed:
                    self._call()

    def _wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        deadline = None if timeout_s is None else self._runtime.clock.monotonic() + timeout_s
        while not done():
            if self._step():
                self._expect_callers()
                continue
            with self._changed:
                if done():
                    return True
                if self._closed and not (self._gathering or self._in_flight or self._ready):
                    return False
                left = None if deadline is None else deadline - self._runtime.clock.monotonic()
                if left is not None and left <= 0:
                    return False
                if not self._may_gather():
                    self._changed.wait(left)
        return True

    def close(self) -> None:
        """Commit what is queued, then stop the tasks. A second call is harmless; behind Ctrl-C it does what is left."""
        with Undisturbed(), self._changed:
            self._closed = True
            self._changed.notify_all()
            self._call()
        while self._step():
            pass
        for worker in self._workers:
            worker.join()

    # the work

    def _work(self) -> None:
        bell = _Bell(self._runtime)
        while True:
            if self._step():
                self._awaited = False
                continue
            with self._changed:
                if self._may_gather():
                    continue
                if self._closed and not self._ready:
                    return
                self._idle.append(bell)
                guard = self._awaited and not self._guarded
                self._guarded |= guard
            rung = bell.wait(limits.UNAWAITED_US / 1e6 if guard else None)
            with self._changed:
                if not rung and bell in self._idle:
                    self._idle.remove(bell)
                if guard:
                    self._guarded = False
                    self._quiet += 1
                    self._awaited &= self._quiet < _QUIET_MAX

    def _expect_callers(self) -> None:
        self._quiet = 0
        if not self._awaited:
            with Undisturbed(), self._changed:
                self._awaited = True
                if self._idle and not self._guarded:
                    self._idle.pop().ring()  # to go on guard

    def _call(self) -> None:
        """Wake a worker if there is something for it to do; all of them to see that it is over. Needs the lock.

        One: a second would only compete with the caller, who often waits for the result and so does the commit itself.
        """
        while self._idle and (self._closed or self._may_gather()):
            self._idle.pop().ring()
            if not self._closed:
                return

    def _may_gather(self) -> bool:
        """True if a step would find something to do now. Needs the condition's lock."""
        if self._gathering or not self._ready:
            return False
        if self._in_flight == 0:
            return True
        # A second commit beside the one under way pays only where there is enough to write.
        pending = sum(source.pending_bytes for source in self._ready)
        return self._in_flight < self._in_flight_max and pending >= self._settings.pipeline_bytes_min

    def _step(self) -> bool:
        """Do one commit, if there is one to do and nobody else is at it."""
        # Half a step would leave events behind of which nobody ever hears, and Ctrl-C may come at any line.
        with Undisturbed():
            return self._step_whole()

    def _step_whole(self) -> bool:
        with self._changed:
            if not self._may_gather():
                return False
            self._gathering = True
        works: list[Work] = []
        try:
            works = self._gather()
        finally:
            with self._changed:
                self._gathering = False
                if works:
                    ticket = self._tickets
                    self._tickets += 1
                    self._in_flight += 1
                # Without works, what was taken may have been refused on the spot, and somebody waits to hear of it.
                if self._ready or self._closed or not works:
                    self._changed.notify_all()
                    self._call()
        if works:
            self._carry_out(works, ticket)
        return True

    def _gather(self) -> list[Work]:
        works: list[Work] = []
        budget = self._settings.commit_bytes_max
        with self._changed:
            sources, self._ready = self._ready, deque()
            self._queued.clear()
        for i, source in enumerate(sources):
            if budget <= 0:
                with self._changed:
                    for late in list(sources)[i:]:
                        self._enqueue(late)
                break
            taken = source.take(budget)
            budget -= sum(draft.load for work in taken for draft in work.drafts)
            works += taken
            if taken and source.pending_bytes:
                with self._changed:
                    self._enqueue(source)
        return works

    def _enqueue(self, source: Source) -> None:
        if id(source) not in self._queued:
            self._queued.add(id(source))
            self._ready.append(source)

    def _carry_out(self, works: list[Work], ticket: int) -> None:
        outcomes: list[Outcome] = [AppendUncertain("the append was interrupted")] * len(works)
        encoded: Encoded | None = None
        try:
            try:
                encoded = self._committer.prepare(works)
            except AnabranchError as exc:
                outcomes = [exc] * len(works)
            except Exception as exc:  # no memory, say: nothing was appended, and whose events these are must hear it
                outcomes = [_caused(StoreUnavailable(f"the append failed: {exc!r}"), exc)] * len(works)
        finally:
            with self._changed:
                while self._turn != ticket:
                    self._changed.wait()
            try:
                if encoded is not None:
                    outcomes = self._commit(encoded)
            finally:
                try:
                    for work, outcome in zip(works, outcomes, strict=True):
                        work.settle(outcome)
                finally:
                    with self._changed:
                        self._turn += 1
                        self._in_flight -= 1
                        self._changed.notify_all()
                        if self._closed:  # else whoever did this commit looks for the next one
                            self._call()
                    self._committed()

    def _commit(self, encoded: Encoded) -> list[Outcome]:
        try:
            return self._committer.commit(encoded)
        except Exception as exc:
            uncertain = AppendUncertain(f"the commit failed in an unforeseen way: {exc!r}")
            return [_caused(uncertain, exc)] * len(encoded.works)


def _caused(error: AnabranchError, cause: Exception) -> AnabranchError:
    error.__cause__ = cause
    return error
