"""Filters the batches of a scan ahead of their consumer, several at a time, in tasks that the scan owns and ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed
from anabranch.runtime.tasks import Task, Tasks

Batches = Sequence[pa.RecordBatch]


class _Failed(NamedTuple):
    error: BaseException


class FilterAhead:
    """An iterator over `keep(batch)` for every batch, in order; for one consumer at a time.

    At most `limits.QUERY_FILTERS_MAX` tasks, and no more than processors, run `keep` in parallel; they start with the
    first request. One at a time takes a batch: at most `limits.QUERY_BATCHES_AHEAD` beyond the one that is requested,
    and none while those taken have `limits.QUERY_AHEAD_BYTES` or more. An error of the batches, or of `keep`, is raised in the place of its batch, which is the last.
    """

    def __init__(self, tasks: Tasks, batches: Iterator[pa.RecordBatch], keep: Callable[[pa.RecordBatch], Batches]):
        self._tasks = tasks
        self._batches = batches
        self._keep = keep
        self._taking = tasks.lock()  # held by the task that takes the next batch
        self._changed = tasks.condition()  # guards the fields below
        self._ready: dict[int, Batches | _Failed] = {}
        self._taken = 0  # number of batches that tasks took
        self._returned = 0  # number of batches that the consumer got
        self._sizes: dict[int, int] = {}  # of the batches taken and not returned, in bytes before filtering
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
            while self._returned not in self._ready:
                if self._closed:
                    raise Closed("query")
                if self._ended and self._returned == self._taken:
                    raise StopIteration
                self._changed.wait()
            found = self._ready[self._returned]
            if isinstance(found, _Failed):
                raise found.error
            del self._ready[self._returned], self._sizes[self._returned]
            self._returned += 1
            self._changed.notify_all()
            return found

    def close(self) -> None:
        """End the tasks, and wait for them. A second close is harmless, and completes an interrupted one."""
        with self._changed:
            self._closed = self._ended = True
            self._changed.notify_all()
            while self._running:
                self._changed.wait()
        for task in self._started:
            task.join(limits.TASK_END_S)
        self._ready.clear()

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
            number = self._begin()
            if number is None:
                return False
            try:
                batch = next(self._batches, None)
            except BaseException as exc:
                self._put(number, _Failed(exc))
                return False
            if batch is None:
                with self._changed:
                    self._taken, self._ended = number, True
                    self._changed.notify_all()
                return False
            with self._changed:
                self._sizes[number] = batch.nbytes
        try:
            found: Batches | _Failed = self._keep(batch)
        except BaseException as exc:
            found = _Failed(exc)
        self._put(number, found)
        return True

    def _begin(self) -> int | None:
        """The number of the next batch, once there is room for it; None if no further one is to be taken."""
        with self._changed:
            while not self._ended and self._is_full():
                self._changed.wait()
            if self._ended:
                return None
            self._taken += 1
            return self._taken - 1

    def _is_full(self) -> bool:
        return (
            self._taken - self._returned > limits.QUERY_BATCHES_AHEAD
            or sum(self._sizes.values()) >= limits.QUERY_AHEAD_BYTES
        )

    def _put(self, number: int, found: Batches | _Failed) -> None:
        with self._changed:
            self._ready[number] = found
            self._ended = self._ended or isinstance(found, _Failed)
            self._changed.notify_all()
