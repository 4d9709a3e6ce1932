"""The driver: a process with one Spark session that runs deployed queries for a host.

`python -m anabranch.spark.queries.driver`, started by `anabranch.spark.queries.driver_process`. It ends at once when its
host is gone, so that it does not compete with the next host.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch import limits
from anabranch.catalog.state.query import QueryRestart, QueryRow
from anabranch.catalog.state.query_version import QueryVersion
from anabranch.deployments.hosting import (
    begin_run,
    checked_contents,
    followed_version,
    kept_versions,
    note_restart,
    without_standby,
)
from anabranch.deployments.questions import answer, open_questions
from anabranch.deployments.versions import check_upgrade
from anabranch.errors import (
    AlreadyExists,
    AnabranchError,
    Conflict,
    CorruptCatalog,
    InvalidArgument,
    MissingExtra,
    NotFound,
    PermissionDenied,
    PipelineFailed,
    StreamHasPipeline,
)
from anabranch.model.ids import Micros
from anabranch.runtime.log_events import QUERY_NOTED
from anabranch.spark.explain import explain, is_crash, is_java_gone, is_too_deep
from anabranch.spark.pipelines import record
from anabranch.spark.pipelines.checkpoint_places import checkpoint_base, drop_abandoned, standby_number
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.run import DeployedRun, Pipeline, run
from anabranch.spark.pipelines.standby import Standby
from anabranch.spark.pipelines.start import use_session
from anabranch.spark.queries.answers import answer_of
from anabranch.spark.queries.protocol import Ended, MessagePipe, parse_line
from anabranch.spark.queries.upgrade import plan_upgrade
from anabranch.spark.queries.warm_up import rehearse, warm_up
from anabranch.spark.session.session import session
from anabranch.store import Store, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["abandoned_tasks", "main"]


def abandoned_tasks(spark: SparkSession) -> int:
    """The approximate number of tasks that still run after their stage has ended. Jobs that begin or end during the
    count make it wrong for a moment, in either direction."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    running = sum(each.numRunningTasks() for each in tracker.getExecutorInfos())
    stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
    # The value of an Option of Scala is its only element.
    return int(running - sum(each.productElement(0).numActiveTasks() for each in stages if each.isDefined()))


# The query itself, or a stream that it names, has to change before another attempt can do better.
_REFUSALS: Final = (
    *(InvalidArgument, NotFound, AlreadyExists, StreamHasPipeline, MissingExtra),
    *(PermissionDenied, CorruptCatalog),  # it is not signed as it has to be; its files were changed
)


@dataclass(eq=False)
class _Followed:
    """A query that this driver follows as its hot standby, as of `change`. `standby` is set while it is ready to take
    over, `taken` once it takes over."""

    change: int
    standby: Standby | None = None
    taken: bool = False


class _Driver:
    """Runs queries, each in a thread of its own."""

    def __init__(self, store: Store, spark: SparkSession, host: MessagePipe, folder: str) -> None:
        self._store = store
        self._spark = spark
        self._host = host
        self._folder = folder
        self._lock = threading.Lock()
        self._running: dict[str, tuple[int, Pipeline]] = {}  # with the epoch of each
        self._stopping: set[str] = set()  # asked to stop while they start
        self._standbys: dict[str, _Followed] = {}

    def take(self, message: dict[str, Any]) -> None:
        """Handle one message of the host."""
        if (name := message.get("run")) is not None:
            self._stopping.discard(name)
            threading.Thread(
                target=self._run, args=(name, message["epoch"], message["change"]), name=f"run-{name}", daemon=True
            ).start()
        elif (name := message.get("follow")) is not None:
            followed = _Followed(message["change"])
            with self._lock:
                self._standbys[name] = followed
            threading.Thread(target=self._follow, args=(name, followed), name=f"follow-{name}", daemon=True).start()
        elif (name := message.get("unfollow")) is not None:
            with self._lock:
                self._standbys.pop(name, None)  # its thread notices, and removes it
        elif (ident := message.get("answer")) is not None:
            threading.Thread(target=self._answer, args=(ident,), name="answer", daemon=True).start()
        elif (name := message.get("stop") or message.get("drop")) is not None:
            with self._lock:
                self._stopping.add(name)
                _, pipeline = self._running.get(name, (0, None))
            if pipeline is not None and "stop" in message:
                pipeline.finish()
            elif pipeline is not None:
                threading.Thread(target=pipeline.stop, daemon=True).start()

    def _answer(self, ident: str) -> None:
        """Answer a question, unless it was withdrawn."""
        use_session(self._spark)
        questions = open_questions(self._store.catalog, self._store.runtime.clock.now())
        question = next((each for each in questions if each.id == ident), None)
        if question is not None:
            answer(self._store.catalog, question, lambda: answer_of(self._store, self._spark, question))

    def _follow(self, name: str, followed: _Followed) -> None:
        """Be the standby of a query, until it takes over, fails or is no longer wanted."""
        use_session(self._spark)
        how: Ended = "failed"
        standby = None
        try:
            rehearse(self._spark)
            version = followed_version(self._store.catalog, name, followed.change)
            standby = Standby(
                self._store,
                self._spark,
                name,
                version.text,
                parameters=version.parameters,
                trigger_us=version.trigger_us,
                wanted=lambda: self._standbys.get(name) is followed,
            )
            standby.start()
            error = self._watch_standby(name, followed, standby)
        except _REFUSALS as exc:
            how, error = "refused", str(exc)
        except AnabranchError as exc:
            error = str(exc)
        except Exception as exc:
            error = explain(exc)
        if error is None:
            return
        with self._lock:
            if followed.taken:  # it runs, even if the last check whether it is ready failed
                return
            if self._standbys.get(name) is followed:
                del self._standbys[name]
        if standby is not None:
            with suppress(Exception):  # its checkpoints are removed with the query
                standby.stop()
        self._host.send(event="unfollowed", query=name, change=followed.change, how=how, error=error)

    def _watch_standby(self, name: str, followed: _Followed, standby: Standby) -> str | None:
        """Watch a standby until it fails or takes over. Returns why it has failed, or None if it takes over."""
        while (error := standby.failure()) is None:
            is_ready = standby.is_ready()
            with self._lock:
                if self._standbys.get(name) is not followed:
                    return None if followed.taken else "it is no longer wanted"
                changes = is_ready != (followed.standby is not None)
                followed.standby = standby if is_ready else None
            if changes:
                self._host.send(event="following", query=name, change=followed.change, ready=is_ready)
            time.sleep(standby.look_s)
        with self._lock:
            return None if followed.taken else error

    def _take_standby(self, name: str, change: int) -> Standby | None:
        """The standby of a query, if it is ready and follows the run of this change. From then on this driver has no
        standby of it."""
        with self._lock:
            followed = self._standbys.pop(name, None)
            if followed is None or followed.standby is None or followed.change != change:
                return None
            followed.taken = True
            return followed.standby

    def _take_over(self, row: QueryRow) -> Pipeline | None:
        """The pipeline of a query whose standby in this driver takes over; None if there is no standby, or it can't."""
        name = row.name
        standby = self._take_standby(name, row.change)
        if standby is None:
            return None
        try:
            return standby.take_over(row.epoch)
        except Exception as exc:
            with suppress(Exception):  # else no other run of the query could begin in this session
                standby.stop()
            if not isinstance(exc, Conflict | PipelineFailed):
                raise
            QUERY_NOTED(query=name, note=f"its standby did not take over: {exc}")
            return None

    def _run(self, name: str, epoch: int, change: int) -> None:
        how, error = self._outcome(name, epoch, change)
        with self._lock:
            if self._running.get(name, (epoch, None))[0] == epoch:  # it may have come back to this host meanwhile
                self._running.pop(name, None)
                self._stopping.discard(name)
        self._host.send(event="ended", query=name, epoch=epoch, how=how, error=error)
        self._end_with_abandoned_tasks(name)

    def _end_with_abandoned_tasks(self, name: str) -> None:
        """End this process if tasks of an ended query still run: Spark can't interrupt these tasks, and they take
        processors from the other queries. The host then runs the other queries in another driver."""
        for _ in range(round(limits.DEPLOYMENT_TASKS_S)):
            try:
                if abandoned_tasks(self._spark) <= 0:
                    return
            except Exception:  # Java ends, and this process with it
                return
            time.sleep(1)
        self._host.send(event="ending", why=f"tasks of query '{name}' went on after it had ended")
        _end_at_once(self._folder)

    def _outcome(self, name: str, epoch: int, change: int) -> tuple[Ended, str | None]:
        try:
            begun = self._store.runtime.clock.now()
            pipeline = self._start(name, epoch, change)
            self._remove_abandoned(name, epoch, begun)
            pipeline.await_termination()
        except Conflict as exc:
            return "lost", str(exc)
        except _REFUSALS as exc:
            return "refused", exc.of_query if isinstance(exc, StreamHasPipeline) else str(exc)
        except Exception as exc:
            if is_java_gone(exc):  # all that this driver runs has ended
                self._host.send(event="ending", why="Spark's Java process has ended")
                _end_at_once(self._folder)
            if is_too_deep(exc):
                return "refused", explain(exc)
            return "crashed" if is_crash(exc) else "failed", explain(exc)
        return "stopped", None

    def _start(self, name: str, epoch: int, change: int) -> Pipeline:
        use_session(self._spark)
        row, version, restart = begin_run(self._store.catalog, name, epoch, change)
        pipeline = self._take_over(row) if restart is None else None
        if pipeline is None:
            pipeline = self._begin(row, version, restart)
        with self._lock:
            self._running[name] = epoch, pipeline
            stopping = name in self._stopping
        self._host.send(event="started", query=name, epoch=epoch, change=row.change, version=version.number)
        if stopping:
            pipeline.finish()
        return pipeline

    def _remove_abandoned(self, name: str, epoch: int, begun: Micros) -> None:
        """Remove the checkpoints of standbys that were killed before this run began. Called in the run's
        own thread, before the run ends: afterwards a standby may take over."""
        with suppress(AnabranchError):  # else they are removed with the next start
            pipeline = without_standby(self._store.catalog, name, epoch)
            if pipeline is not None:
                drop_abandoned(self._store, pipeline, before=standby_number(pipeline.generation, begun))

    def _begin(self, row: QueryRow, version: QueryVersion, restart: QueryRestart | None) -> Pipeline:
        name, epoch = row.name, row.epoch
        if restart is not None and restart.upgrade and restart.only is None:
            restart = self._choose(name, epoch, version, restart)
        # An upgrade's places apply only to the statements that start over.
        places = None if restart is None or (restart.only is not None and not restart.places) else list(restart.places)
        return run(
            self._store,
            version.text,
            name=name,
            spark=self._spark,
            start_from=places,
            by="append" if restart is None else restart.by,
            replace=restart is not None and restart.replace,
            parameters=version.parameters,
            trigger_us=version.trigger_us,
            deployed=DeployedRun(epoch, None if row.replaces is None else row.version),
            only=None if restart is None else restart.only,
            files=checked_contents(self._store.catalog, version),
        )

    def _choose(self, name: str, epoch: int, version: QueryVersion, restart: QueryRestart) -> QueryRestart:
        """Which statements start over in an upgrade. Raises InvalidArgument if a statement can't be upgraded,
        or has to start over and `restart` has no place for it."""
        found = check_upgrade(
            plan_upgrade(
                record.get(self._store.catalog, name),
                kept_versions(self._store.catalog, name),
                plan(version.text, version.parameters, version.files),
            ),
            places=bool(restart.places),
        )
        begun = [each.target for each in found.statements if each.verdict in ("restarts", "new")]
        return note_restart(self._store.catalog, name, epoch, restart, begun)


def _listen(messages: queue.SimpleQueue[dict[str, Any]], folder: str) -> None:
    """Queue the host's messages up to `exit`. If the input ends without `exit`, the host was killed: end this
    process."""
    for line in sys.stdin:
        message = parse_line(line)
        messages.put(message)
        if message.get("exit"):
            return
    _end_at_once(folder)


def _end_with_java(spark: Any, host: MessagePipe, folder: str) -> None:
    """End this process as soon as Spark's Java process has ended: without it nothing can be run, nor stopped."""
    java = spark.sparkContext._gateway.proc
    code = java.wait()
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    host.send(event="ending", why=f"Spark's Java process ended {how}")
    _end_at_once(folder)


def _end_at_once(folder: str) -> None:
    """End this process and all of its own: Java, and Spark's Python workers. Their files go with them."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Serve a host until it says to end, or is gone."""
    host = MessagePipe(os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # other output goes to the log
    setup = parse_line(sys.stdin.readline())
    if not setup:
        return
    folder: str = setup["folder"]
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages, folder), name="host", daemon=True).start()
    try:
        with connect(**setup["store"], create=False) as store:
            _serve(store, setup, host, messages)
    except Exception as exc:
        host.send(event="ending", why=explain(exc))
    _end_at_once(folder)


def _serve(store: Store, setup: dict[str, Any], host: MessagePipe, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
    folder: str = setup["folder"]
    spark = session(name="anabranch queries", store=store, checkpoints=checkpoint_base(store), **setup["conf"])
    threading.Thread(target=_end_with_java, args=(spark, host, folder), name="java", daemon=True).start()
    if setup["warm"]:
        warm_up(spark)
    driver = _Driver(store, spark, host, folder)
    on_cluster = not (spark.sparkContext.master or "").startswith("local")
    host.send(event="ready", on_cluster=on_cluster)
    while not (message := messages.get()).get("exit"):
        driver.take(message)
    if on_cluster:
        _leave_cluster(spark, folder)


def _leave_cluster(spark: SparkSession, folder: str) -> None:
    """Have the cluster remove what it keeps for this driver, such as the ended pods of its executors in Kubernetes."""
    late = threading.Timer(limits.DEPLOYMENT_LEAVE_S, _end_at_once, (folder,))
    late.daemon = True
    late.start()
    with suppress(Exception):  # the cluster can't be reached
        spark.stop()


if __name__ == "__main__":
    main()
