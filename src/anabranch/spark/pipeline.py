"""Pipelines: files of SQL whose statements run as Structured Streaming queries, each feeding a stream.

    pipeline = run("./river", "rollups.sql", once=True)
    pipeline.await_termination()

`run` starts one, and a `Pipeline` (`anabranch.spark.pipeline_running`) is one that runs. What is known of pipelines that run elsewhere, or ran, is in
`anabranch.spark.pipeline_admin`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import InvalidArgument
from anabranch.model.pointer import EventPointer
from anabranch.readers.place import Place
from anabranch.runtime.ids import token
from anabranch.spark import pipeline_row as row_of
from anabranch.spark.pipeline_heartbeat import Heartbeat
from anabranch.spark.pipeline_home import checkpoint_root, log_folder
from anabranch.spark.pipeline_plan import Step, place_text, plan
from anabranch.spark.pipeline_prepare import prepare
from anabranch.spark.pipeline_query import explain
from anabranch.spark.pipeline_row import Restart
from anabranch.spark.pipeline_running import Pipeline
from anabranch.spark.pipeline_session import quiet_session
from anabranch.store import Store, connect
from anabranch.streams.holding import Held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    heartbeat = Heartbeat(store.catalog, store.runtime, name, holder)
    try:
        if spark is None:
            spark = quiet_session(log_folder(root), name=f"anabranch {name}", store=store, checkpoints=root.text)
        prepared = prepare(spark, store, row, steps, events_max=events_max, checkpoints=checkpoints, held=held)
        return Pipeline(store, spark, name, steps, prepared, heartbeat, once=once, owned=owned, held=held)
    except BaseException as exc:
        heartbeat.close()
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
