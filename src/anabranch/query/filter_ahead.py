"""Filters the batches of a scan ahead of their consumer, several at a time, in tasks that the scan owns and ends."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed
from anabranch.runtime.tasks import Task, Tasks

Batches = Sequence[pa.RecordBatch]


@dataclass(eq=False, slots=True)
class _TakenBatch:
    """What is kept of a batch that a task took, or the error in its place."""

    size: int = 0  # in bytes, before filtering
    kept: Batches | None = None
    error: BaseException | None = None


class FilterAhead:
    """An iterator over `keep(batch)` for every batch, in order; for one consumer at a time.

    At most `limits.QUERY_FILTERS_MAX` tasks, and no more than processors, run `keep` in parallel; they start with the
    first request. One task at a time takes the next batch. The tasks take at most `limits.QUERY_BATCHES_AHEAD` batches
    beyond the requested one, and none while the taken batches have `limits.QUERY_AHEAD_BYTES` or more. An error of the
    batches, or of `keep`, is raised in place of its batch, and ends the iteration."""

    def __init__(self, tasks: Tasks, batches: Iterator[pa.RecordBatch], keep: Callable[[pa.RecordBatch], Batches]):
        self._tasks = tasks
        self._batches = batches
        self._keep = keep
        self._taking = tasks.lock()  # held by the task that takes the next batch
        self._changed = tasks.condition()  # guards the fields below
        self._taken: deque[_TakenBatch] = deque()  # batches that the consumer did not get yet, in order
        self._ended = False  # no further batch will be taken
        self._closed = False
        self._started: list[Task] = []
        self._running = 0

    def __iter__(self) -> FilterAhead:
        return self

    def __next__(self) -> Batches:
        """What is kept of the next batch, perhaps nothing. Raises Closed."""
        with self._changed:
            if not self._started and not self._ended:
                self._start()
            while not self._taken or (self._taken[0].kept is None and self._taken[0].error is None):
                if self._closed:
                    raise Closed("query")
                if self._ended and not self._taken:
                    raise StopIteration
                self._changed.wait()
            first = self._taken[0]
            if first.kept is None:
                assert first.error is not None, "it is done"
                raise first.error
            self._taken.popleft()
            self._changed.notify_all()
            return first.kept

    def close(self) -> None:
        """End the tasks, and wait for them. A second close is harmless, and completes an interrupted one."""
        with self._changed:
            self._closed = self._ended = True
            self._changed.notify_all()
            while self._running:
                self._changed.wait()
        for task in self._started:
            task.join(limits.TASK_END_S)
        self._taken.clear()

    def _start(self) -> None:
        for _ in range(min(limits.QUERY_FILTERS_MAX, os.cpu_count() or 1)):
            self._running += 1
            try:
                self._started.append(self._tasks.spawn("filter", self._run))
            except BaseException:
                self._running -= 1
                if not self._started:
                    raise
                return  # no further thread can be started: those that run do the work

    def _run(self) -> None:
        try:
            while self._filter_next():
                pass
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _filter_next(self) -> bool:
        """Take the next batch and filter it. Returns False if there is none to take."""
        with self._taking:
            taken = self._begin()
            if taken is None:
                return False
            try:
                batch = next(self._batches, None)
            except BaseException as exc:
                self._put(taken, error=exc)
                return False
            if batch is None:
                with self._changed:
                    self._taken.pop()
                    self._ended = True
                    self._changed.notify_all()
                return False
            taken.size = batch.nbytes
        try:
            self._put(taken, self._keep(batch))
        except BaseException as exc:
            self._put(taken, error=exc)
        return True

    def _begin(self) -> _TakenBatch | None:
        """The place of the next batch, once there is room for it; None if no further one is to be taken."""
        with self._changed:
            while not self._ended and self._is_full():
                self._changed.wait()
            if self._ended:
                return None
            self._taken.append(_TakenBatch())
            return self._taken[-1]

    def _is_full(self) -> bool:
        sizes = [each.size for each in self._taken]
        return len(sizes) > limits.QUERY_BATCHES_AHEAD or sum(sizes) >= limits.QUERY_AHEAD_BYTES

    def _put(self, taken: _TakenBatch, kept: Batches | None = None, error: BaseException | None = None) -> None:
        with self._changed:
            taken.kept, taken.error = kept, error
            self._ended = self._ended or error is not None
            self._changed.notify_all()
