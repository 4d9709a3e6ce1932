"""A pipeline that runs in this process: its queries, its results, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, Conflict, InvalidArgument, PipelineFailed, StoreUnavailable
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.seconds import wait_limit
from anabranch.runtime.log_events import PIPELINE_ENDED, PIPELINE_FAILED, PIPELINE_LATE
from anabranch.spark.explain import explain
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.admin import drop_checkpoints
from anabranch.spark.pipelines.heartbeat import Heartbeat
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.prepare import PreparedQuery
from anabranch.spark.pipelines.progress import QueryMeter, QueryProgress
from anabranch.spark.pipelines.start import start
from anabranch.spark.shared_streams import start_reading, stop_reading
from anabranch.spark.source.checkpoint import batch_in_progress, is_settled
from anabranch.store import Store
from anabranch.store.engine_api import Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Pipeline", "stop_queries"]


class Pipeline:
    """A pipeline that runs in this process. Thread-safe. Call `stop`, or use it as a context manager."""

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        name: str,
        steps: Sequence[Step],
        prepared: Mapping[str, PreparedQuery],
        heartbeat: Heartbeat,
        *,
        once: bool,
        owned: bool,
        held: list[Held] | None = None,
        trigger_us: int | None = None,
        queries: Mapping[str, StreamingQuery] | None = None,
    ) -> None:
        """`held`: the holds on an ephemeral pipeline's streams; None if the pipeline is not ephemeral. `queries`: those
        that run already, by target."""
        self.name = name
        self.store = store
        self._spark = spark
        self._steps = tuple(steps)
        self._prepared = prepared
        self._heartbeat = heartbeat
        self._once = once
        self._owned = owned
        self._held = held
        self._trigger_us = trigger_us
        self._lock = store.runtime.tasks.lock()
        self._queries: dict[str, StreamingQuery] = dict(queries or {})
        self._meters = {step.target: QueryMeter(store, step, prepared[step.target]) for step in steps}
        results = {
            str(name): stream
            for step in steps
            for name, stream in zip(
                step.statement.results, (prepared[step.target].target, *prepared[step.target].sides), strict=True
            )
        }
        self._tails = {name: store.cuts.tail(stream) for name, stream in results.items()}
        self._warned: set[str] = set()
        self._reading: list[StreamId] = []
        for target in self._queries:
            self._note_reading(prepared[target])
        self._finishing = self._stopping = self._ended = False
        self._failure: PipelineFailed | Conflict | None = None
        self._changed = store.runtime.tasks.condition()
        try:
            self._advance()
            self._supervisor = store.runtime.tasks.spawn(f"supervise-{name}", self._supervise)
        except BaseException:
            self._stop_queries()
            raise

    # state and progress

    @property
    def queries(self) -> Mapping[str, StreamingQuery]:
        """Spark's queries by target; with `once` only those started so far."""
        return MappingProxyType(dict(self._queries))

    @property
    def active(self) -> bool:
        """True until the pipeline has ended, by itself or because it was stopped."""
        return not self._ended

    @property
    def read_to(self) -> Mapping[str, Mapping[str, StreamCut]]:
        """For each target, the cuts up to which its sources were read as of the last `progress`."""
        return {
            target: {str(name): cut for name, cut in meter.reached.items()} for target, meter in self._meters.items()
        }

    @property
    def checkpoints(self) -> Mapping[str, str]:
        """The checkpoint folders by target, as paths or URLs."""
        return {target: each.checkpoint.text for target, each in self._prepared.items()}

    def progress(self) -> list[QueryProgress]:
        """Measure and return the progress of each query; a query comes after those whose results it reads."""
        with self._lock:
            measured = [self._meters[step.target].measure(self._queries.get(step.target)) for step in self._steps]
            for each in measured:
                if each.target not in self._warned and (warning := each.warning) is not None:
                    self._warned.add(each.target)
                    PIPELINE_LATE(pipeline=self.name, warning=warning)
        self._heartbeat.progress = measured
        return measured

    @property
    def last_progress(self) -> list[QueryProgress]:
        """The result of the last `progress` call by any thread; still available after the pipeline has ended."""
        return list(self._heartbeat.progress)

    def caught_up(self) -> bool:
        """True if every query has read its sources to their tails and closed all windows that it can close."""
        if any(each.lag or each.state != "running" for each in self.progress()):
            return False
        return all(is_settled(self._prepared[target].checkpoint, query) for target, query in self._queries.items())

    # results

    def collect(self, target: str | None = None) -> pa.Table:
        """The results published since this run began, of one target (default: the last statement's). Columns as stored.

        For a target with mode = complete, all its rows. Raises InvalidArgument for an unknown target.
        """
        target = target or self._steps[-1].target
        if target not in self._tails:
            raise InvalidArgument(f"the pipeline writes no '{target}'; it writes {', '.join(self._tails)}")
        start = self._tails[target]
        info = self.store.streams.get(start.stream)  # found by id: it may have been renamed
        columns = info.schema.columns
        if any(step.target == target and step.statement.options.mode == "complete" for step in self._steps):
            start = self.store.cuts.head(info.id)
        with self.store.reader(info.name, start=start, columns=columns.names) as reader:
            return pa.Table.from_batches(list(reader.batches()), schema=reader.schema).select(columns.names)

    def dataframe(self, target: str | None = None) -> DataFrame:
        """The result of `collect` as a DataFrame of the pipeline's session."""
        return self._spark.createDataFrame(self.collect(target))

    # ending

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the pipeline ends; False if it has not ended within `timeout_s` seconds (None: no limit). Raises
        PipelineFailed, Conflict if another process has taken the pipeline over, and InvalidArgument
        for an invalid `timeout_s`."""
        timeout_s = wait_limit("timeout_s", timeout_s)
        clock = self.store.runtime.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._changed:
            while not self._ended:
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    return False
                # Short waits, so that Ctrl-C takes effect promptly.
                self._changed.wait(0.2 if left is None else min(left, 0.2))
        if self._failure is not None:
            raise self._failure
        return True

    def finish(self) -> None:
        """Let the pipeline end once each query has finished the micro-batch in progress. Returns at once; a call of
        `await_termination` waits for the end, and `stop` ends the pipeline without finishing the micro-batch."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the queries, and return once the pipeline has ended. Published results stay; the next run repeats a
        batch that was in progress. A second call is harmless. Raises StoreUnavailable if its queries have not ended after
        `limits.PIPELINE_STOP_S`."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        if not self._supervisor.join(limits.PIPELINE_STOP_S):
            raise StoreUnavailable(
                f"the queries of pipeline '{self.name}' have not ended within {limits.PIPELINE_STOP_S:g} s; end the process that runs it"
            )

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # supervision

    def _advance(self) -> bool:
        """Start the queries that are due: all, or with `once` the next level after the previous one has ended. False
        when no query is active or left to start."""
        if any(query.isActive for query in self._queries.values()) and self._once:
            return True
        waiting = [step for step in self._steps if step.target not in self._queries]
        if not waiting:
            return any(query.isActive for query in self._queries.values())
        for step in waiting:
            if self._once and step.level > waiting[0].level:
                break
            query = start(
                self._spark,
                self.store,
                step,
                self._prepared[step.target],
                name=f"{self.name}/{step.target}",
                once=self._once,
                trigger_us=self._trigger_us,
                run=(self.name, self._heartbeat.holder.token),
            )
            with self._lock:
                self._queries[step.target] = query
            self._note_reading(self._prepared[step.target])
        return True

    def _note_reading(self, made: PreparedQuery) -> None:
        streams = [StreamCut.parse(start).stream for start in made.starts.values()]
        self._reading += streams
        start_reading(streams)

    def _supervise(self) -> None:
        # Each step is tried even if an earlier one failed: after Java was killed, queries can't even be stopped.
        # Callers that wait for the pipeline must get the error.
        for what, act in (
            ("its supervision", self._watch),
            ("its end", self._stop_queries),
            ("its end", self.progress),
            ("its end", self._release_row),
        ):
            try:
                act()
            except Exception as exc:
                self._failure = self._failure or self._failure_of(what, exc)
        if self._failure is None:
            PIPELINE_ENDED(pipeline=self.name)
        else:
            PIPELINE_FAILED(pipeline=self.name, error=self._failure)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self) -> None:
        """Start queries and measure progress until the pipeline must end."""
        unfinished: Mapping[str, int] | None = None  # once it is to end: the batch to wait for, by target
        while not self._stopping:
            self._failure = self._heartbeat.lost or self._query_failure()
            if self._failure is not None:
                return
            if self._finishing or self._heartbeat.stop_requested:
                running = self._in_progress()
                unfinished = running if unfinished is None else unfinished
                if all(running.get(target) != batch for target, batch in unfinished.items()):
                    self._failure = self._query_failure()  # a query may have failed since the pipeline was asked to end
                    return
            elif not self._advance():
                self._failure = self._query_failure()
                return
            with self._changed:
                if not self._stopping:
                    self._changed.wait(0.1 if self._once else 0.5)
            self.progress()

    def _in_progress(self) -> Mapping[str, int]:
        """The number of the micro-batch that each active query is processing, by target."""
        found = {}
        for target, query in self._queries.items():
            try:
                batch = batch_in_progress(self._prepared[target].checkpoint) if query.isActive else None
            except (OSError, AnabranchError):  # its checkpoint can't be read; the query itself will fail
                batch = None
            if batch is not None:
                found[target] = batch
        return found

    def _failure_of(self, what: str, exc: Exception) -> PipelineFailed:
        failure = PipelineFailed(self.name, what, explain(exc))
        failure.__cause__ = exc
        return failure

    def _query_failure(self) -> PipelineFailed | None:
        for target, query in self._queries.items():
            if not query.isActive and (why := query.exception()) is not None:
                return self._failure_of(target, why)
        return None

    def _stop_queries(self) -> None:
        streams, self._reading = self._reading, []
        try:
            stop_queries(self._queries.values())
        finally:
            stop_reading(streams)

    def _remove_ephemeral(self, held: Sequence[Held], now: int) -> None:
        """Release an ephemeral pipeline's streams, and remove its row and checkpoints unless the row was lost."""
        for each in held:
            each.leave()
        row = row_of.remove(self.store.catalog, self.name, self._heartbeat.holder, now=now)
        if row is not None:
            drop_checkpoints(self.store, row)

    def _release_row(self) -> None:
        """Release the pipeline's row for the next run; of an ephemeral pipeline, remove it. Close an owned store."""
        self._heartbeat.close()
        holder, now = self._heartbeat.holder, self.store.runtime.clock.now()
        progress = [each.as_json() for each in self.last_progress]
        error = None if self._failure is None else str(self._failure)
        try:
            if self._held is not None:
                self._remove_ephemeral(self._held, now)
            row_of.finish(self.store.catalog, self.name, holder, now=now, error=error, progress=progress)
        finally:
            if self._owned:
                self.store.close()


def stop_queries(queries: Iterable[StreamingQuery]) -> None:
    """Stop all of these queries, even if one of them can't be stopped. Raises the first error."""
    failed: Exception | None = None
    for query in queries:
        try:
            query.stop()
        except Exception as exc:
            failed = failed or exc
    if failed is not None:
        raise failed
