"""Isolates upkeep failures: a failure for one stream does not stop the others.

The catalog stores the failures; `check`, metrics and logs report them. Background upkeep retries a failed stream after a
growing pause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.kind import State
from anabranch.catalog.state.store import UPKEEP_FAILURE, FailureKey, FailureRow, failures_of
from anabranch.errors import AppendUncertain, Closed, Forked, LeaseExpired, StoreUnavailable, StreamNotFound
from anabranch.log.progress import ProgressCallback
from anabranch.model.ids import Micros, StreamId
from anabranch.runtime.log_events import UPKEEP_FAILED, UPKEEP_RECOVERED, UPKEEP_STEP_FAILED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy

# These errors concern the whole store, or this process: upkeep stops at them.
WHOLE_STORE: Final = (AppendUncertain, Closed, Forked, LeaseExpired, StoreUnavailable)

_RETRY: Final = RetryPolicy(
    pause_s_min=limits.UPKEEP_RETRY_US / 1e6, pause_s_max=limits.UPKEEP_RETRY_US_MAX / 1e6, jitter=0
)


@dataclass(frozen=True, slots=True)
class UpkeepFailure:
    """Upkeep's `task` (compact, flatten, retain, scale, collect) has failed for a stream `times` times in a row, first
    at `since` and last at `failed_at`. Background upkeep does not try it before `next_at`. `name` is the stream's
    name, or its id if it was deleted and only copies view its data."""

    stream: StreamId
    name: str
    task: str
    error: str
    times: int
    since: Micros
    failed_at: Micros
    next_at: Micros

    def __str__(self) -> str:
        return f"{self.task} of '{self.name}' has failed {self.times} time(s) in a row: {self.error}"


def upkeep_failures(reading: Reading, stream: StreamId | None = None) -> list[UpkeepFailure]:
    """The failures without a later success, of all streams or one, by stream and task."""
    prefix = "" if stream is None else failures_of(stream)
    return [_failure(reading, found) for found in reading.states(UPKEEP_FAILURE, prefix=prefix)]


class Isolation:
    """One pass of one `task` over streams, each of which may fail independently. `background`: background mode, in which
    a stream that failed is left alone until its `next_at`."""

    def __init__(self, catalog: Catalog, runtime: Runtime, task: str, *, background: bool) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._task = task
        self._background = background
        self.failed: list[str] = []  # in this pass, for its report
        self._failed_streams: set[StreamId] = set()
        self._progress_error: Exception | None = None
        with catalog.reading() as reading:
            found = [_failure(reading, each) for each in reading.states_found(UPKEEP_FAILURE, task)]
        self._recorded = {each.stream: each for each in found}

    def is_backing_off(self, stream: StreamId) -> bool:
        """True if the stream must be skipped for now."""
        recorded = self._recorded.get(stream)
        return self._background and recorded is not None and recorded.next_at > self._runtime.clock.now()

    def wrap_progress(self, progress: ProgressCallback) -> ProgressCallback:
        """Wraps `progress`: an error from it ends the pass, and does not count as a failure of a stream."""

        def guarded_progress(what: str, done: int, total: int) -> None:
            try:
                progress(what, done, total)
            except Exception as exc:
                self._progress_error = exc
                raise

        return guarded_progress

    def is_fatal(self, error: Exception) -> bool:
        """True if the error does not concern just one stream, so that the pass can't continue."""
        return error is self._progress_error or isinstance(self._catalog.translated(error), WHOLE_STORE)

    @contextmanager
    def guard(self, stream: StreamId) -> Iterator[None]:
        """Wraps the work on one stream. An error is recorded and ends only this work, unless it concerns the whole
        store."""
        try:
            yield
        except Exception as exc:  # an error of one stream must not stop the others
            if self.is_fatal(exc):
                raise
            if not isinstance(exc, StreamNotFound):  # else it was deleted
                self.record_failure(stream, exc)

    def record_failure(self, stream: StreamId, error: Exception, *, where: str | None = None) -> None:
        """Records that the work on a stream has failed, or on the part `where` of it."""
        text = str(error).partition("\n")[0] or type(error).__name__
        self.failed.append(f"{where or f'stream {stream:016x}'}: {text}")
        if stream in self._failed_streams:
            return  # one record a pass is enough
        self._failed_streams.add(stream)
        now, previous = self._runtime.clock.now(), self._recorded.get(stream)
        times = 1 if previous is None else previous.times + 1
        pause_s = _RETRY.pause_s(times)
        row = FailureRow(
            f"{type(error).__name__}: {text}",
            times,
            now if previous is None else previous.since,
            failed_at=now,
            next_at=Micros(now + round(pause_s * 1_000_000)),
        )
        with self._catalog.writing(self._subject(stream)) as txn:
            txn.put_state(UPKEEP_FAILURE, FailureKey(stream, self._task), row)
        UPKEEP_FAILED(
            traceback=error if previous is None else None,
            task=self._task,
            stream=f"{stream:016x}",
            times=times,
            pause_s=pause_s,
            error=error,
        )

    def clear_failures(self, *, except_for: Collection[StreamId] = ()) -> None:
        """Removes the failures of streams that did not fail again. Call it after all streams were processed, except
        those that wait and those in `except_for`."""
        for stream in [each for each in self._recorded if each not in except_for and not self.is_backing_off(each)]:
            self.clear_failure(stream)

    def clear_failure(self, stream: StreamId) -> None:
        """Removes the recorded failure of a stream, unless it failed in this pass too."""
        if stream in self._failed_streams or self._recorded.pop(stream, None) is None:
            return
        with self._catalog.writing(self._subject(stream)) as txn:
            txn.drop_state(UPKEEP_FAILURE, FailureKey(stream, self._task))
        UPKEEP_RECOVERED(task=self._task, stream=f"{stream:016x}")

    def _subject(self, stream: StreamId) -> str:
        return f"upkeep failure {stream:016x} {self._task}"


def run_all(steps: Sequence[Callable[[], object]]) -> None:
    """Runs all steps, even if some fail, then raises the first error. Raises one about the whole store at once."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except WHOLE_STORE:
            raise
        except Exception as exc:
            if first is not None:
                UPKEEP_STEP_FAILED(traceback=exc, error=exc)
            first = first or exc
    if first is not None:
        raise first


def _failure(reading: Reading, found: State[FailureKey, FailureRow]) -> UpkeepFailure:
    (stream, task), row = found
    name = f"{stream:016x}"
    with suppress(Exception):  # an unreadable row may be the reason for the failure
        info = reading.stream(stream)
        name = name if info is None else str(info.name)
    return UpkeepFailure(stream, name, task, row.error, row.times, row.since, row.failed_at, row.next_at)
