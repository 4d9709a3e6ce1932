"""Pipelines: files of SQL whose statements run as Structured Streaming queries, each feeding a stream.

    pipeline = run("./river", "rollups.sql", once=True)
    pipeline.await_termination()

`run` starts a pipeline and returns a `Pipeline` (`anabranch.spark.pipelines.running`). Functions for pipelines that run
in other processes, or have ended, are in `anabranch.spark.pipelines.admin`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.deployments.files import check_files
from anabranch.errors import AnabranchError, InvalidArgument, PipelineFailed
from anabranch.model.pointer import EventPointer
from anabranch.model.time_kind import time_kind
from anabranch.runtime.bounded_files import read_bounded, to_text
from anabranch.runtime.folders import path_text
from anabranch.runtime.ids import token
from anabranch.runtime.log_events import PIPELINE_FAILED, PIPELINE_STARTED
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.explain import explain
from anabranch.spark.pipelines import record as row_of
from anabranch.spark.pipelines.checkpoint_places import checkpoint_root, log_folder
from anabranch.spark.pipelines.declared_functions.declared import check_code
from anabranch.spark.pipelines.declared_functions.install import install
from anabranch.spark.pipelines.heartbeat import Heartbeat
from anabranch.spark.pipelines.loops import refuse_loops
from anabranch.spark.pipelines.plan import Step, functions_of, plan, replay_steps
from anabranch.spark.pipelines.prepare import DeployedRun, RunOptions, check_present, prepare
from anabranch.spark.pipelines.record import Restart
from anabranch.spark.pipelines.running import Pipeline
from anabranch.spark.pipelines.session import session_with_log_file
from anabranch.spark.pipelines.targets import check_sources, check_targets
from anabranch.spark.session.java_watch import watch_java
from anabranch.spark.stores import require_own
from anabranch.store import Store, connect
from anabranch.store.engine_api import Held, Place, place_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEPLOYED", "DeployedRun", "Pipeline", "run"]

DEPLOYED: Final = "query:"


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
    also: bool = False,
    flush: bool = False,
    parameters: Mapping[str, str] | None = None,
    trigger_us: int | None = None,
    deployed: DeployedRun | None = None,
    only: Collection[str] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Pipeline:
    """Start a pipeline; return when its first queries run.

    `sql` is the path of a file, or the text itself. `name` is the pipeline's name (default: the file's name without its
    suffix). Its checkpoints are kept under this name, in `<store>/pipelines/<name>/`, so that a later run continues
    where this one stops. `once`: read the events that exist now, statement after statement, and end. `spark`: the
    session to use.

    `start_from` starts over, with new checkpoints, at one or several places: `head`, `tail`, a time (append or event
    time, see `by`) or a cut, which applies to its stream. Results are appended after the earlier ones, or with
    `replace` they replace them. A window that began before that place contains only the events after it. Without
    checkpoints to continue from, a statement begins at its `start` option, else at the head of its sources.

    `events_max`: the maximum number of events that a micro-batch takes from each source. `checkpoints`: the folder, or
    the URL in S3 (`s3://bucket/prefix?…`, as for blobs in `anabranch.connect`), for the checkpoints of a pipeline that
    runs for the first time or starts over. Default: `pipelines` in the store's folder, or with a PostgreSQL catalog
    beside its blobs.

    `ephemeral`: the streams of the pipeline's late events are ephemeral, and when it ends, the pipeline and its
    checkpoints are removed. Its results stay. A killed ephemeral pipeline can be continued by a later run.

    `also`: allow feeding streams that another pipeline feeds. Without it this is refused, because the same statements
    under another name would double all results. It is needed only once: later runs of the pipeline don't need it.

    `flush`, with `once`: after all events are processed, close the windows that are still open and publish their
    results. Later events for these windows are late; events for later windows are not. Without it, windows are closed
    this way only if all sources of a statement are sealed.

    `parameters`: values, as text, of the parameters that the file declares.

    `trigger_us`: the time between micro-batches of statements without the option `trigger`. `deployed`: the run of a
    deployed query that this is.

    `only`: an upgrade. The statements with these targets start over, at `start_from`, else where they say; the others
    continue from their checkpoints, even if they have changed: `anabranch.spark.queries.upgrade` must have allowed it.

    `files`: the wheels, WebAssembly modules and resources that the functions of the file use, by name. Without them,
    functions in Python are those of modules that are installed, which a deployed query may not use.

    A pipeline runs in one process at a time. A store given by its path is closed when the pipeline ends.

    Raises PipelineRunning, StreamHasPipeline, PipelineFailed, InvalidSql with the line, InvalidArgument if the
    statements or the result streams are not those of the checkpoints, MissingExtra."""
    text, name = _read(sql, name)
    steps = plan(text, parameters, check_files(files or {}))
    functions = functions_of(steps)
    if files is not None or deployed is not None or any(each.language == "WASM" for each in functions):
        check_code(functions, files or {})
    if deployed is not None and deployed.replay is not None:
        steps = replay_steps(steps, deployed.replay)
    restart = _restart(start_from, by, replace, only)
    options = RunOptions(
        events_max=events_max,
        checkpoints=None if checkpoints is None else path_text("checkpoints", checkpoints),
        once=once,
        ephemeral=ephemeral,
        also=also,
        flush=flush,
        trigger_us=trigger_us,
        deployed=deployed,
    )
    start = _Start(steps, text, name, restart, options, files or {}, spark)
    if flush and not once:
        raise InvalidArgument("flush requires once: it closes the windows that are open at the end of such a run")
    require_own(store, "a pipeline")
    if isinstance(store, Store):
        return start.run(store, owned=False)
    opened = connect(store, create=False)
    try:
        return start.run(opened, owned=True)
    except BaseException:
        opened.close()
        raise


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of a pipeline: the arguments of `run`, parsed."""

    steps: Sequence[Step]
    text: str
    name: str
    restart: Restart | None
    options: RunOptions
    files: Mapping[str, bytes]
    spark: SparkSession | None

    @property
    def fenced(self) -> str | None:
        """The prefix of the tokens of the runs from which this run takes the pipeline; None: from none."""
        return None if self.options.deployed is None else DEPLOYED

    def run(self, store: Store, *, owned: bool) -> Pipeline:
        """Start it on a store, which is closed at the end if it is `owned`. Raises as `run`."""
        name, steps, deployed = self.name, self.steps, self.options.deployed
        row_of.check_name(name)
        root = checkpoint_root(store, name, self.options.checkpoints)
        self._check(store, root)
        unique = token(store.runtime.ids)
        holder = row_of.this_process(unique if deployed is None else f"{DEPLOYED}{deployed.epoch}:{unique}")
        outputs = [step.output for step in steps]
        clock = store.runtime.clock
        row = row_of.claim(
            store.catalog,
            name,
            self.text,
            outputs,
            holder,
            now=clock.now(),
            restart=self.restart,
            fenced=self.fenced,
            epoch=None if deployed is None else deployed.epoch,
        )
        heartbeat = Heartbeat(store.catalog, store.runtime, name, holder)
        held: list[Held] | None = [] if self.options.ephemeral else None
        try:
            refuse_loops(store, name, outputs)  # again: another pipeline may have been claimed meanwhile
            spark = self._session(store, root)
            watch_java(spark)
            prepared = prepare(spark, store, row, steps, self.options, held=held)
            PIPELINE_STARTED(pipeline=name, generation=row.generation, start="continues" if row.prepared else "begins")
            return Pipeline(
                store,
                spark,
                name,
                steps,
                prepared,
                heartbeat,
                once=self.options.once,
                owned=owned,
                held=held,
                trigger_us=self.options.trigger_us,
            )
        except BaseException as exc:
            heartbeat.close()
            for each in held or ():
                with suppress(AnabranchError):  # its lease expires
                    each.leave()
            # Other exceptions, such as Ctrl-C, are not failures.
            error = explain(exc) if isinstance(exc, Exception) else None
            if error is not None:
                PIPELINE_FAILED(pipeline=name, error=error)
            row_of.finish(store.catalog, name, holder, now=clock.now(), error=error)
            if error is None or isinstance(exc, AnabranchError):
                raise
            raise PipelineFailed(name, "its start", error) from exc

    def _session(self, store: Store, root: CheckpointFolder) -> SparkSession:
        """The session that was given, else that of this process, with the functions of the file."""
        made = self.spark or session_with_log_file(
            log_folder(root), name=f"anabranch {self.name}", store=store, checkpoints=root.text
        )
        install(made, functions_of(self.steps), self.files)
        return made

    def _check(self, store: Store, root: CheckpointFolder) -> None:
        """Check everything that can be checked before the row is claimed."""
        row = row_of.get(store.catalog, self.name)
        outputs = [step.output for step in self.steps]
        if row is not None:
            row_of.refuse_running(row, store.runtime.clock.now(), self.fenced)
            if row.prepared and self.restart is None:
                row_of.refuse_changed(row, outputs, deployed=self.options.deployed is not None)
        check_sources(store, self.steps)
        refuse_loops(store, self.name, outputs)
        present = check_targets(store, self.name, row, self.steps, self.restart, also=self.options.also)
        if present:
            check_present(self._session(store, root), store, row, self.name, present)


def _read(sql: str | os.PathLike[str], name: str | None) -> tuple[str, str]:
    """The SQL text, and the pipeline's name."""
    text = path_text("sql", sql)
    names_file = text.endswith(".sql") and not any(mark in text for mark in ("\n", ";", " ("))
    if not isinstance(sql, str) or names_file or _exists(text):
        path = Path(text)
        try:
            return to_text(read_bounded(path, limits.DEPLOYMENT_TEXT_BYTES_MAX)), name or path.stem
        except OSError as exc:
            raise InvalidArgument(f"{text:.300} can't be read: {exc.strerror}") from exc
    if name is None:
        raise InvalidArgument("a pipeline given as text needs a name, under which its checkpoints are kept: pass name=")
    return text, name


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # it is too long for a path: SQL
        return False


def _restart(
    places: Place | Sequence[Place] | None, by: str, replace: bool, only: Collection[str] | None = None
) -> Restart | None:
    time_kind(by)
    if places is None:
        if replace:
            raise InvalidArgument(
                "replace requires a place to start from: the results from there replace the earlier ones"
            )
        return None if only is None else Restart((), by, False, tuple(sorted(only)))
    several = isinstance(places, Sequence) and not isinstance(places, str | EventPointer)
    chosen = tuple(map(place_text, places if several else (places,)))  # type: ignore[arg-type]
    return Restart(chosen, by, replace, None if only is None else tuple(sorted(only)))
