"""One call for a Spark session whose settings suit streams. Nothing about streams themselves belongs here."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from anabranch.errors import MissingExtra, StoreUnavailable
from anabranch.spark.home import ensure_home
from anabranch.spark.jars import ensure_jars
from anabranch.spark.java import ensure_java
from anabranch.spark.reach import is_s3, reach, remember_why_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.store import Store

__all__ = ["session"]

_STREAMING = "org.apache.spark.sql.execution.streaming"

# What each is worth was measured with micro-batches of 100 rows and a windowed count, on two cores.
_SETTINGS = {
    # Offsets and commits go through Hadoop's FileSystem instead of its FileContext: 285 → 154 ms a batch.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    # State outgrows the Java heap only with RocksDB. Without the change log it uploads a snapshot for each batch,
    # which costs 50 ms more than state on the heap; with it, nothing.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Java and Python talk over a Unix socket instead of loopback TCP: 264 → 217 ms a batch with a Python sink.
    "spark.python.unix.domain.socket.enabled": "true",
    # Imports once, before workers are forked, and out of the garbage collector's way: the first batch of a query with a
    # Python source and sink comes after 7 s instead of 11.5, the later ones sooner by the 30–50 ms of each collection.
    "spark.python.daemon.module": "anabranch.spark.daemon",
    # The default is 10,000 rows: 4 M rows into a Python sink took 1.56 s, with this 1.11 s.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Queries of one pipeline share the executors evenly instead of queueing behind the oldest job.
    "spark.scheduler.mode": "FAIR",
    # Which events Spark drops as late, and so which the side stream must hold, follows from these two. They are Spark's
    # defaults, fixed here because another value would falsify that account.
    "spark.sql.streaming.statefulOperator.allowMultiple": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # Event times are UTC in the store; a session in local time would show and cut windows otherwise.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Right for one machine, wrong for a cluster.
_LOCAL_SETTINGS = {
    # One task a core: each further partition of a stateful query costs its own state store and commit.
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Spark otherwise asks the name service for this host's address, and listens on it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_CLASS_PATH = "spark.driver.extraClassPath"
_WAREHOUSE = "spark.sql.warehouse.dir"


def session(
    *,
    master: str | None = None,
    name: str = "anabranch",
    store: Store | str | os.PathLike[str] | None = None,
    checkpoints: str | None = None,
    **options: str,
) -> SparkSession:
    """Return the process's Spark session, started with settings for streams if there is none.

    `master` is Spark's (default: that of `SPARK_MASTER` or spark-submit, else `local[2]`). `options` are Spark
    settings and win over those chosen here: `session(**{"spark.ui.enabled": "true"})`. On a session that runs already,
    only the settings that Spark can change at run time take effect. Tables that a local session itself keeps
    (`saveAsTable`) go with the process; `spark.sql.warehouse.dir` keeps their files elsewhere.

    `store` and `checkpoints`, a URL as `anabranch.connect` takes it for blobs, say what the session is for. Where either
    lies in S3, it reads and writes `s3a://` there: Java's client for it is fetched from Maven Central the first time (13
    MB, kept in the user's cache folder). Where that can't be had the session starts all the same; what needs it says so.

    Finds a Java runtime first. Raises MissingExtra without pyspark or Java, InvalidArgument for a place that can't be read.
    """
    ensure_java()
    try:
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise MissingExtra("Spark", "spark") from exc
    # Spark's workers otherwise run the first `python3` on the PATH, which knows nothing of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    # It prints each Spark error as a line of JSON with Java's stack, beside the exception that says the same.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

    running = SparkSession.getActiveSession()
    master = master or os.environ.get("SPARK_MASTER") or "local[2]"
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings |= _LOCAL_SETTINGS
        if running is None:
            ensure_home()
            if _WAREHOUSE not in options:
                settings[_WAREHOUSE] = _passing_folder()
    settings |= options
    settings["spark.driver.extraJavaOptions"] = _quiet(options.get("spark.driver.extraJavaOptions", ""))
    places = [place for place in (*_remote(store), checkpoints) if is_s3(place)]
    if running is None and places:
        settings |= _with_s3(options, local=master.startswith("local"))

    builder = SparkSession.builder.appName(name)
    if running is None:
        builder = builder.master(master)
    for key, value in settings.items():
        if running is None or running.conf.isModifiable(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for place in places:
        reach(spark, place)  # what it can't, those who need it will say
    return spark


def _passing_folder() -> str:
    """Where the tables lie that a local session itself keeps. It forgets them at its end, so they go with the process;
    Spark's default is `spark-warehouse` in whatever folder the process was started in."""
    folder = tempfile.mkdtemp(prefix="anabranch-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remote(store: Store | str | os.PathLike[str] | None) -> list[str]:
    if store is None:
        return []
    from anabranch.spark.stores import places_of  # loads the store, which Spark's daemon does without

    places = places_of(store)
    return [place for place in (places.blobs, places.history) if place is not None]


def _with_s3(options: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """The setting by which Java finds its client for S3, unless the caller's settings bring it."""
    if any("hadoop-aws" in options.get(name, "") for name in ("spark.jars", "spark.jars.packages", _CLASS_PATH)):
        return {}
    try:
        jars = ensure_jars()
    except StoreUnavailable as exc:
        remember_why_missing(str(exc))
        return {}
    if not jars:
        return {}
    if local:  # taken from where they are; to a cluster they are sent
        paths = [*filter(None, [options.get(_CLASS_PATH)]), f"{jars[0].parent}/*"]
        return {_CLASS_PATH: os.pathsep.join(paths)}
    return {"spark.jars": ",".join([*filter(None, [options.get("spark.jars")]), *map(str, jars)])}


def _quiet(java_options: str) -> str:
    """Java options with logging reduced to errors, unless the caller configures logging."""
    if "log4j2.configurationFile" in java_options:
        return java_options
    return f"{java_options} -Dlog4j2.configurationFile={files('anabranch.spark') / 'log4j2.properties'}".strip()
