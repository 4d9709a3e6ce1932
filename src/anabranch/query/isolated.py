"""Runs the queries of people who aren't trusted, each alone in a process that is killed at the query's deadline.

Some functions of DuckDB neither stop when they are interrupted nor count their memory (`repeat('x', 2000000000)`). In a
process of their own they can't harm the broker. A process that has finished its query serves the next one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from multiprocessing.connection import Pipe
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed, QueryLimitExceeded, RateLimited, StoreUnavailable
from anabranch.errors.system import unavailable
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.query.messages import over_time
from anabranch.query.sandbox import QueryLimits
from anabranch.store import Store
from anabranch.store.addresses import MEMORY
from anabranch.wire.errors import error_from_json

Form: TypeAlias = Literal["query", "pipeline"]
# What a process sends before each part of an answer: its head (a schema, or a text), a batch, its end, or an error.
HEAD: Final = b"H"
BATCH: Final = b"B"
DONE: Final = b"D"
FAILED: Final = b"F"
_CONTENT_BYTES_MAX: Final = 1 << 32
_POLL_S: Final = 0.5
_START_S: Final = 30.0
_END_S: Final = 2.0
_KILLED_S: Final = 30.0
_ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}


class _Process:
    """One child process, and a folder for its temporary files. The folder is removed once the process has ended,
    because a process that is killed leaves its spilled data. The pipe is read by one thread at a time."""

    def __init__(self, store: Store, limits_: QueryLimits) -> None:
        addresses = store.addresses
        if addresses is None or MEMORY in (addresses.url, addresses.blobs):
            raise StoreUnavailable("a store in memory can't be queried from another process")
        self._clock = store.runtime.clock
        try:
            self._folder = mkdtemp(prefix="anabranch-queries-")
        except OSError as exc:
            raise unavailable(exc, "there is no folder for the temporary files of a query") from exc
        self._pipe, theirs = Pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anabranch.query.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT, "TMPDIR": self._folder},
            )
        except BaseException:
            self._pipe.close()
            rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        opening = {"store": asdict(addresses), "memory_bytes": limits_.memory_bytes, "spill_bytes": limits_.spill_bytes}
        try:
            self.send(opening)
            kind, _ = self.receive(self._clock.monotonic() + _START_S, lambda: False)
            assert kind == DONE
        except (TimeoutError, QueryLimitExceeded) as exc:
            self.kill()
            raise StoreUnavailable("the process for queries did not start") from exc
        except BaseException:
            self.kill()
            raise

    def send(self, request: Mapping[str, object]) -> None:
        """Send a request, by pickle; no answer is unpickled, for it isn't trusted. Raises StoreUnavailable if the
        process has ended."""
        try:
            self._pipe.send(request)
        except OSError as exc:
            raise StoreUnavailable("the process for queries has ended") from exc

    def receive(self, deadline: float, over: Callable[[], bool]) -> tuple[bytes, bytes]:
        """The next part of an answer: its kind, and the content. Raises QueryLimitExceeded if the process ended,
        TimeoutError at the deadline, Closed once `over` returns True."""
        ready = False
        while not ready:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError
            if over():
                raise Closed("query")
            ready = self._pipe.poll(min(_POLL_S, left))
        # The process isn't trusted to send the rest of a part that it has begun.
        ending = threading.Timer(deadline - self._clock.monotonic(), self._process.kill)
        ending.start()
        try:
            part = self._pipe.recv_bytes(1), self._pipe.recv_bytes(_CONTENT_BYTES_MAX)
        except (EOFError, OSError):
            part = None
        finally:
            ending.cancel()
        if self._clock.monotonic() >= deadline:
            raise TimeoutError
        if part is None:
            raise QueryLimitExceeded(
                "the process of the query ended: most likely the query needs more memory than it may use", "memory"
            )
        return part

    def finish(self) -> None:
        """Let a process without a query end."""
        self._pipe.close()

    def end(self) -> None:
        """Let the process end; kill it if it has not ended after `_END_S`."""
        self.finish()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.kill()

    def kill(self) -> None:
        """End the process now, and remove its folder. A second call is harmless."""
        self._process.kill()
        self._process.wait(_KILLED_S)
        self._pipe.close()
        rmtree(self._folder, ignore_errors=True)


class IsolatedResult:
    """The result of a query that runs in another process: batches of one schema, read once, in order. `close` ends the
    query; exhausting the result does so too."""

    def __init__(
        self, queries: IsolatedQueries, process: _Process, over: Callable[[], bool], limits_: QueryLimits
    ) -> None:
        self._queries = queries
        self._process: _Process | None = process
        self._over = over
        self._limits = limits_
        self._deadline = queries.deadline(limits_)
        self.schema: pa.Schema = pa.schema([])
        self.parameters = 0

    def start(self, request: Mapping[str, object]) -> bytes:
        """Send the request, and return the head of the answer."""
        try:
            assert self._process is not None
            self._process.send(request)
            kind, head = self._next()
            assert kind == HEAD
            return head
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while self._process is not None:
                kind, body = self._next()
                if kind == DONE:
                    self._release()
                    return
                assert kind == BATCH
                yield pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the query. A second call is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._queries.gone()

    def _next(self) -> tuple[bytes, bytes]:
        assert self._process is not None
        try:
            kind, body = self._process.receive(self._deadline, self._over)
        except TimeoutError:
            raise over_time(self._limits) from None
        if kind == FAILED:
            self._release()
            raise error_from_json(json.loads(body))
        return kind, body

    def _release(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        self._queries.take_back(process)


class IsolatedQueries:
    """Queries in processes of their own, at most `processes` at the same time. Thread-safe. Belongs to its store, which
    closes it."""

    def __init__(self, store: Store, limits_: QueryLimits, *, processes: int = limits.QUERY_PROCESSES_MAX) -> None:
        self._store = store
        self.limits = limits_
        self._processes = processes
        self._changed = store.runtime.tasks.condition()
        self._idle: list[_Process] = []
        self._used = 0
        self._closed = False

    def run(
        self,
        sql: str,
        streams: Mapping[StreamName, StreamId],
        *,
        parameters: pa.Table | None = None,
        describe: bool = False,
        over: Callable[[], bool] = lambda: False,
    ) -> IsolatedResult:
        """Start a query over these streams; with `describe` only find its columns and the number of its parameters. The
        one row of `parameters` holds their values. `over` is called at least twice a second; once it returns True, the
        query is ended.

        Raises InvalidSql, QueryLimitExceeded, RateLimited if too many queries run."""
        result = IsolatedResult(self, self._take(), over, self.limits)
        head = result.start({"sql": sql, "streams": dict(streams), "parameters": parameters, "describe": describe})
        result.parameters = int.from_bytes(head[:4], "little")
        result.schema = pa.ipc.read_schema(pa.py_buffer(head[4:]))
        return result

    def translate(self, sql: str, dialect: str, form: Form, over: Callable[[], bool] = lambda: False) -> str:
        """See `anabranch.query.dialects.translate.translate`, which may take exponential time. Raises also
        QueryLimitExceeded after `limits.TRANSLATION_S_MAX`, and RateLimited."""
        bounded = replace(self.limits, seconds=limits.TRANSLATION_S_MAX)
        result = IsolatedResult(self, self._take(), over, bounded)
        try:
            text = result.start({"translate": sql, "dialect": dialect, "form": form}).decode()
            list(result)  # read to its end, so that the process can serve the next query
            return text
        except QueryLimitExceeded as exc:
            raise QueryLimitExceeded(
                f"the SQL could not be translated within {limits.TRANSLATION_S_MAX:g} s and the memory that a query may use; "
                "write it with less nesting",
                exc.limit,
            ) from exc

    def deadline(self, limits_: QueryLimits) -> float:
        """The end of a query that starts now, on the monotonic clock."""
        return self._store.runtime.clock.monotonic() + (limits_.seconds or limits.QUERY_S_MAX)

    def _take(self) -> _Process:
        deadline = self._store.runtime.clock.monotonic() + limits.QUERY_QUEUE_S
        with self._changed:
            while self._used >= self._processes and not self._closed:
                left = deadline - self._store.runtime.clock.monotonic()
                if left <= 0:
                    raise RateLimited(f"{self._processes} queries are running, the most that this broker runs", 1.0)
                self._changed.wait(left)
            if self._closed:
                raise Closed("queries")
            self._used += 1
            if self._idle:
                return self._idle.pop()
        try:
            return _Process(self._store, self.limits)
        except BaseException:
            self.gone()
            raise

    def take_back(self, process: _Process) -> None:
        """Keep a process that has finished its query for the next one."""
        with self._changed:
            self._used -= 1
            if not self._closed:
                self._idle.append(process)
            self._changed.notify_all()
        if self._closed:
            process.end()

    def gone(self) -> None:
        """Record that a process was killed, so that another one may start."""
        with self._changed:
            self._used -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the processes. Results that are being read end with an error. A second call is harmless."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for process in idle:
            process.finish()
        for process in idle:
            process.end()
