"""Pipelines: files of SQL whose statements run as Structured Streaming queries, each feeding a stream.

    pipeline = run("./river", "rollups.sql", once=True)
    pipeline.await_termination()

`run` starts one, and a `Pipeline` is one that runs. What is known of pipelines that run elsewhere, or ran, is in
`anabranch.spark.pipeline_admin`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.errors import AnabranchError, Conflict, InvalidArgument, PipelineFailed, StoreUnavailable
from anabranch.model.cut import StreamCut
from anabranch.model.pointer import EventPointer
from anabranch.readers.place import Place
from anabranch.runtime.ids import token
from anabranch.spark import pipeline_row as row_of
from anabranch.spark.pipeline_admin import drop_checkpoints
from anabranch.spark.pipeline_checkpoint import is_settled
from anabranch.spark.pipeline_home import checkpoint_root, log_folder
from anabranch.spark.pipeline_plan import Step, place_text, plan
from anabranch.spark.pipeline_prepare import Prepared, prepare
from anabranch.spark.pipeline_progress import Gauge, QueryProgress
from anabranch.spark.pipeline_query import explain, start
from anabranch.spark.pipeline_row import HEARTBEAT_S, Holder, Restart
from anabranch.spark.pipeline_session import quiet_session
from anabranch.store import Store, connect
from anabranch.streams.holding import Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Pipeline", "run"]


def run(
    store: Store | str | os.PathLike[str],
    sql: str | os.PathLike[str],
    *,
    name: str | None = None,
    spark: SparkSession | None = None,
    once: bool = False,
    start_from: Place | Sequence[Place] | None = None,
    by: str = "append",
    replace: bool = False,
    events_max: int | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
    ephemeral: bool = False,
) -> Pipeline:
    """Start a pipeline; return when its first queries run.

    `sql` is the path of a file, or the text itself. `name` is what the pipeline is called (default: the file's name
    without its ending); under it are kept its checkpoints, in `<store>/pipelines/<name>/`, so that a later run goes on
    where this one stops. `once`: read what is there now, statement after statement, and end. `spark`: the session to use.

    `start_from` begins anew, with new checkpoints, at a place or several: `head`, `tail`, a time (append or event time, as
    `by` says) or a cut for the stream it belongs to. Results are appended behind the earlier ones, or with `replace`
    instead of them. A window that began before that place holds only what lies behind it. Without checkpoints to go on
    from, a statement begins where its `start` option says, else at the head of its sources.

    `events_max`: how many events a micro-batch takes at most from each source. `checkpoints`: the folder, or the URL in S3
    (`s3://bucket/prefix?…`, as `anabranch.connect` takes it for blobs), that holds those of a pipeline's first run, or of
    one that begins anew; default: `pipelines` in the store's folder, or with a PostgreSQL catalog beside its blobs.

    `ephemeral`: what the pipeline makes for itself goes with it: the streams of its late events are ephemeral, and when it
    ends it is forgotten, with its checkpoints. Its results stay. One that was killed goes on where it was.

    The same pipeline runs in one process at a time. A store given by its path is closed when the pipeline ends.

    Raises PipelineRunning, InvalidSql with the line, InvalidArgument where the statements are not those of the
    checkpoints, MissingExtra.
    """
    text, name = _read(sql, name)
    steps = plan(text)
    restart = _restart(start_from, by, replace)
    folder = None if checkpoints is None else os.fspath(checkpoints)
    held: list[Held] | None = [] if ephemeral else None
    if isinstance(store, Store):
        return _run(store, steps, text, name, spark, restart, events_max, folder, once=once, owned=False, held=held)
    opened = connect(store, create=False)
    try:
        return _run(opened, steps, text, name, spark, restart, events_max, folder, once=once, owned=True, held=held)
    except BaseException:
        opened.close()
        raise


def _run(
    store: Store,
    steps: Sequence[Step],
    text: str,
    name: str,
    spark: SparkSession | None,
    restart: Restart | None,
    events_max: int | None,
    checkpoints: str | None,
    *,
    once: bool,
    owned: bool,
    held: list[Held] | None,
) -> Pipeline:
    root = checkpoint_root(store, name, checkpoints)
    row_of.check_name(name)
    holder = row_of.this_process(token(store.runtime.ids))
    outputs = [step.output for step in steps]
    clock = store.runtime.clock
    row = row_of.claim(store.catalog, name, text, outputs, holder, now=clock.now(), restart=restart)
    keeper = _Keeper(store, name, holder)
    try:
        if spark is None:
            spark = quiet_session(log_folder(root), name=f"anabranch {name}", store=store, checkpoints=root.text)
        prepared = prepare(spark, store, row, steps, events_max=events_max, checkpoints=checkpoints, held=held)
        return Pipeline(store, spark, name, steps, prepared, keeper, once=once, owned=owned, held=held)
    except BaseException as exc:
        keeper.close()
        error = explain(exc) if isinstance(exc, Exception) else None  # not a failure: somebody pressed Ctrl-C
        row_of.finish(store.catalog, name, holder, now=clock.now(), error=error)
        raise


def _read(sql: str | os.PathLike[str], name: str | None) -> tuple[str, str]:
    """The text, and the pipeline's name."""
    text = os.fspath(sql)
    is_path = not isinstance(sql, str) or not any(mark in text for mark in ("\n", ";", " ("))
    if is_path and (not isinstance(sql, str) or Path(text).exists() or text.endswith(".sql")):
        path = Path(text)
        try:
            return path.read_text(encoding="utf-8"), name or path.stem
        except OSError as exc:
            raise InvalidArgument(f"{path} can't be read: {exc.strerror}") from exc
        except UnicodeDecodeError as exc:
            raise InvalidArgument(f"{path} is no text in UTF-8") from exc
    if name is None:
        raise InvalidArgument("a pipeline given as text needs a name, under which its checkpoints are kept")
    return text, name


def _restart(places: Place | Sequence[Place] | None, by: str, replace: bool) -> Restart | None:
    if by not in ("append", "event"):
        raise InvalidArgument(f"by is 'append' or 'event', not '{by}'")
    if places is None:
        if replace:
            raise InvalidArgument(
                "replace goes with a place to start from: its results take the place of the earlier ones"
            )
        return None
    several = isinstance(places, Sequence) and not isinstance(places, str | EventPointer)
    chosen = tuple(map(place_text, places if several else (places,)))  # type: ignore[arg-type]
    return Restart(chosen, by, replace)


class _Keeper:
    """Keeps the catalog's row alive from the claim on, and hears there of a request to stop."""

    def __init__(self, store: Store, name: str, holder: Holder) -> None:
        self._store = store
        self._name = name
        self.holder = holder
        self.progress: Sequence[QueryProgress] = ()
        self.stop_requested = False
        self.lost: Conflict | None = None
        self._closed = False
        self._wake = store.runtime.tasks.condition()
        self._task = store.runtime.tasks.spawn(f"pipeline-{name}", self._work)

    def close(self) -> None:
        """End the heartbeat. A second call is harmless."""
        self._closed = True
        with self._wake:
            self._wake.notify_all()
        self._task.join()

    def _work(self) -> None:
        store = self._store
        while not self._closed and self.lost is None:
            progress = [each.as_json() for each in self.progress]
            try:
                now = store.runtime.clock.now()
                self.stop_requested |= row_of.beat(store.catalog, self._name, self.holder, now=now, progress=progress)
            except Conflict as exc:
                self.lost = exc
            except StoreUnavailable:
                pass  # the row outlives several missed heartbeats
            with self._wake:
                if not self._closed:
                    self._wake.wait(HEARTBEAT_S)


class Pipeline:
    """A pipeline that runs in this process. Thread-safe. Stop it, or use it as a context manager."""

    def __init__(
        self,
        store: Store,
        spark: SparkSession,
        name: str,
        steps: Sequence[Step],
        prepared: Mapping[str, Prepared],
        keeper: _Keeper,
        *,
        once: bool,
        owned: bool,
        held: list[Held] | None = None,
    ) -> None:
        """`held`: the streams of an ephemeral pipeline; None for a lasting one."""
        self.name = name
        self.store = store
        self._spark = spark
        self._steps = tuple(steps)
        self._prepared = prepared
        self._keeper = keeper
        self._once = once
        self._owned = owned
        self._held = held
        self._lock = store.runtime.tasks.lock()
        self._queries: dict[str, StreamingQuery] = {}
        self._gauges = {step.target: Gauge(store, step, prepared[step.target].starts) for step in steps}
        self._tails = {step.target: store.streams.tail(step.target) for step in steps}
        self._stopping = self._ended = False
        self._failure: PipelineFailed | Conflict | None = None
        self._changed = store.runtime.tasks.condition()
        try:
            self._advance()
        except BaseException:
            self._stop_queries()
            raise
        self._supervisor = store.runtime.tasks.spawn(f"supervise-{name}", self._supervise)

    # what it does

    @property
    def queries(self) -> Mapping[str, StreamingQuery]:
        """Spark's queries by target; with `once` those that were started so far."""
        return MappingProxyType(dict(self._queries))

    @property
    def active(self) -> bool:
        """True until it ended, by itself or because it was stopped."""
        return not self._ended

    @property
    def read_to(self) -> Mapping[str, Mapping[str, StreamCut]]:
        """For each target, the cuts up to which its sources were read as of the last `progress`."""
        return {
            target: {str(name): cut for name, cut in gauge.reached.items()} for target, gauge in self._gauges.items()
        }

    @property
    def checkpoints(self) -> Mapping[str, str]:
        """The checkpoint folders by target, as paths or URLs."""
        return {target: each.checkpoint.text for target, each in self._prepared.items()}

    def progress(self) -> list[QueryProgress]:
        """How far each query is, in the order in which they feed each other."""
        with self._lock:
            measured = [self._gauges[step.target].measure(self._queries.get(step.target)) for step in self._steps]
        self._keeper.progress = measured
        return measured

    @property
    def last_progress(self) -> list[QueryProgress]:
        """The progress as it was last asked for, by anybody; still there when the pipeline has ended."""
        return list(self._keeper.progress)

    def caught_up(self) -> bool:
        """True if every query has read its sources to their tails and closed what it can close by them."""
        if any(each.lag or each.state != "running" for each in self.progress()):
            return False
        return all(is_settled(self._prepared[target].checkpoint, query) for target, query in self._queries.items())

    # results

    def collect(self, target: str | None = None) -> pa.Table:
        """The results published since this run began, of one target or of the last statement. Columns as stored."""
        target = target or self._steps[-1].target
        if target not in self._tails:
            raise InvalidArgument(f"the pipeline writes no '{target}'; it writes {', '.join(self._tails)}")
        columns = self.store.streams.get(target).schema.columns
        start = self._tails[target]
        if self._rewrites(target):
            start = self.store.streams.head(target)
        with self.store.reader(target, start=start, columns=columns.names) as reader:
            return pa.Table.from_batches(list(reader.batches()), schema=reader.schema).select(columns.names)

    def dataframe(self, target: str | None = None) -> DataFrame:
        """The same as a DataFrame of the pipeline's session."""
        return self._spark.createDataFrame(self.collect(target))

    def _rewrites(self, target: str) -> bool:
        return any(step.target == target and step.statement.options.mode == "complete" for step in self._steps)

    # its end

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until it ends; False if it has not within `timeout_s` seconds. Raises PipelineFailed, and Conflict where
        another process has taken it over."""
        clock = self.store.runtime.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._changed:
            while not self._ended:
                left = None if deadline is None else deadline - clock.monotonic()
                if left is not None and left <= 0:
                    return False
                # Short waits, so that Ctrl-C is answered at once.
                self._changed.wait(0.2 if left is None else min(left, 0.2))
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Stop its queries, and return when all is settled. What is published stays, a batch under way is made again by
        the next run. A second call is harmless."""
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        self._supervisor.join()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # supervision

    def _advance(self) -> bool:
        """Start what is due: everything, or with `once` the next level when the one before is done. False at the end."""
        if any(query.isActive for query in self._queries.values()) and self._once:
            return True
        waiting = [step for step in self._steps if step.target not in self._queries]
        if not waiting:
            return any(query.isActive for query in self._queries.values())
        for step in waiting:
            if self._once and step.level > waiting[0].level:
                break
            made = self._prepared[step.target]
            query = start(
                self._spark,
                self.store,
                step,
                made.frame,
                made.late,
                checkpoint=made.checkpoint,
                name=f"{self.name}/{step.target}",
                once=self._once,
            )
            with self._lock:
                self._queries[step.target] = query
        return True

    def _supervise(self) -> None:
        failure: PipelineFailed | Conflict | None = None
        try:
            while not self._stopping and not self._keeper.stop_requested:
                failure = self._keeper.lost or self._failed()
                if failure is not None or not self._advance():
                    break
                with self._changed:
                    if not self._stopping:
                        self._changed.wait(0.1 if self._once else 0.5)
                self.progress()
            self._stop_queries()
        except Exception as exc:
            # Whoever waits for the pipeline must hear of it, whatever it was.
            failure = PipelineFailed(self.name, "its supervision", explain(exc))
            failure.__cause__ = exc
        self._end(failure)

    def _failed(self) -> PipelineFailed | None:
        for target, query in self._queries.items():
            if not query.isActive and (why := query.exception()) is not None:
                failure = PipelineFailed(self.name, target, explain(why))
                failure.__cause__ = why
                return failure
        return None

    def _stop_queries(self) -> None:
        for query in self._queries.values():
            query.stop()

    def _vanish(self, held: Sequence[Held], now: int) -> None:
        """Take along what an ephemeral pipeline made for itself, unless another process has taken it over."""
        for each in held:
            each.leave()
        row = row_of.remove(self.store.catalog, self.name, self._keeper.holder, now=now)
        if row is not None:
            drop_checkpoints(self.store, row)

    def _end(self, failure: PipelineFailed | Conflict | None) -> None:
        try:
            progress = [each.as_json() for each in self.progress()]
            self._keeper.close()
            now = self.store.runtime.clock.now()
            error = None if failure is None else str(failure)
            if self._held is not None:
                self._vanish(self._held, now)
            row_of.finish(self.store.catalog, self.name, self._keeper.holder, now=now, error=error, progress=progress)
            if self._owned:
                self.store.close()
        except AnabranchError as exc:
            failure = failure or PipelineFailed(self.name, "its end", str(exc))
        with self._changed:
            self._failure, self._ended = failure, True
            self._changed.notify_all()
