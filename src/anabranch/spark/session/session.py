"""Creates a Spark session with settings for streams. Nothing about streams themselves belongs here."""

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

from anabranch.errors import StoreUnavailable
from anabranch.errors.optional import optional
from anabranch.spark.session.class_archive import archive_options
from anabranch.spark.session.home import ensure_home, leave_home, runs_our_command, start_worker_server
from anabranch.spark.session.jars import ensure_jars
from anabranch.spark.session.java import ensure_java
from anabranch.spark.session.spark_access import configure_access, is_s3, remember_why_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.store import Store

__all__ = ["session"]

_STREAMING = "org.apache.spark.sql.execution.streaming"

# The effect of each was measured with micro-batches of 100 rows and a windowed count, on two cores.
_SETTINGS = {
    # Offsets and commits go through Hadoop's FileSystem instead of its FileContext: 285 → 154 ms a batch.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    # With RocksDB, state may exceed the Java heap. Without the change log it uploads a snapshot for each batch, which
    # costs 50 ms more than state on the heap; with the change log it costs no more.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Joins of streams: 60,000 events of NEXMark in 17 s instead of 33 with format 2. A checkpoint keeps its format.
    "spark.sql.streaming.join.stateFormatVersion": "4",
    # Java and Python talk over a Unix socket instead of loopback TCP: 264 → 217 ms a batch with a Python sink.
    "spark.python.unix.domain.socket.enabled": "true",
    # Imports once, before workers are forked, and exempts the imports from garbage collection. The first batch of a
    # query with a Python source and sink takes 7 s instead of 11.5; later ones save the 30–50 ms of each collection.
    "spark.python.daemon.module": "anabranch.spark.session.daemon",
    # 4 M rows into a Python sink took 1.56 s with the default of 10,000 rows, and 1.11 s with this.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Queries of one pipeline share the executors evenly instead of queueing behind the oldest job.
    "spark.scheduler.mode": "FAIR",
    # These two decide which events Spark drops as late, and so which events the stream of late events must hold. They
    # are Spark's defaults, set here because `late_events` is correct only for these values.
    "spark.sql.streaming.statefulOperator.allowMultiple": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # Event times are UTC in the store; a session in local time would show times and align windows differently.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Suitable for one machine, but not for a cluster.
_LOCAL_SETTINGS = {
    # One task per core: each further partition of a stateful query costs another state store and commit.
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Otherwise Spark resolves this host's name, and listens on that address.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Executors of YARN have a temporary folder whose path is too long for a Unix socket.
_CLUSTER_SETTINGS = {"spark.python.unix.domain.socket.dir": "/tmp"}

_CLASS_PATH = "spark.driver.extraClassPath"
_CLASS_PATH_BEHIND = "SPARK_DIST_CLASSPATH"
_MASTER = "spark.master"
_WAREHOUSE = "spark.sql.warehouse.dir"


def session(
    *,
    master: str | None = None,
    name: str = "anabranch",
    store: Store | str | os.PathLike[str] | None = None,
    checkpoints: str | None = None,
    **options: str,
) -> SparkSession:
    """Return the process's Spark session; start it with settings for streams if there is none.

    `master` is Spark's master (default: the option `spark.master`, `SPARK_MASTER` or spark-submit's, else `local[2]`).
    `options` are Spark settings and override those chosen here: `session(**{"spark.ui.enabled": "true"})`. On a session that is already
    running, only settings that Spark can change at run time take effect. Tables that a local session itself stores
    (`saveAsTable`) are removed when the process ends; set `spark.sql.warehouse.dir` to keep their files elsewhere.

    `store` and `checkpoints` (a URL as for blobs in `anabranch.connect`) say what the session will access. If either is
    in S3, the session is set up to read and write it through `s3a://`. The Java client for S3 is fetched from Maven
    Central the first time (13 MB, kept in the user's cache folder). If the fetch fails, the session starts
    nevertheless, and operations that need the client report why it is missing.

    Finds a Java runtime first. Raises MissingExtra without pyspark or Java, InvalidArgument for a place that can't be
    parsed, StoreUnavailable if Spark has not started after `limits.SPARK_START_S`.
    """
    ensure_java()
    with optional("Spark", "spark"):
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession

        from anabranch.spark.session.java_watch import watch_java
        from anabranch.spark.session.start import start_within_deadline
    # This logger prints each Spark error as a line of JSON with Java's stack, in addition to the exception itself.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

    running = SparkSession.getActiveSession()
    master = master or options.get(_MASTER) or os.environ.get("SPARK_MASTER") or "local[2]"
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        settings |= _LOCAL_SETTINGS
        if running is None:
            ensure_home()
            if runs_our_command():
                start_worker_server()
            if _WAREHOUSE not in options:
                settings[_WAREHOUSE] = _passing_folder()
            from anabranch.spark.shared_streams import make_folder

            make_folder()
    else:
        settings |= _CLUSTER_SETTINGS
        leave_home()
    # Otherwise Spark's workers run the first `python3` on the PATH, which may not be in this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings |= options
    settings.pop(_MASTER, None)  # it is given below
    java_options = _quiet(options.get("spark.driver.extraJavaOptions", ""))
    settings["spark.driver.extraJavaOptions"] = f"{java_options} {archive_options(java_options)}".strip()
    places = [place for place in (*_remote(store), checkpoints) if is_s3(place)]
    if running is None and places:
        settings |= _with_s3(options, local=master.startswith("local"))

    builder = SparkSession.builder.appName(name)
    if running is None:
        builder = builder.master(master)
    for key, value in settings.items():
        if running is None or running.conf.isModifiable(key):
            builder = builder.config(key, value)
    spark = start_within_deadline(builder)
    watch_java(spark)
    for place in places:
        configure_access(spark, place)  # failures are reported by the operations that need the place
    return spark


def _passing_folder() -> str:
    """A temporary folder for the tables that a local session itself stores, removed when the process ends. The
    session's catalog of these tables does not outlive the process either. Spark's default is `spark-warehouse` in the
    process's working folder."""
    folder = tempfile.mkdtemp(prefix="anabranch-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remote(store: Store | str | os.PathLike[str] | None) -> list[str]:
    if store is None:
        return []
    from anabranch.spark.stores import addresses_of  # loads the store, which Spark's daemon doesn't need

    places = addresses_of(store)
    return [place for place in (places.blobs, places.history) if place is not None]


def _with_s3(options: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """The setting through which Java finds its S3 client; {} if the caller's settings provide the client, if Spark
    ships it, or if it can't be fetched."""
    if any("hadoop-aws" in options.get(name, "") for name in ("spark.jars", "spark.jars.packages", _CLASS_PATH)):
        return {}
    try:
        jars = ensure_jars()
    except StoreUnavailable as exc:
        remember_why_missing(str(exc))
        return {}
    if not jars:
        return {}
    if (
        local
    ):  # used in place, behind Spark's own jars, as the archive of classes wants it; for a cluster Spark sends them
        paths = [*filter(None, os.environ.get(_CLASS_PATH_BEHIND, "").split(os.pathsep)), f"{jars[0].parent}/*"]
        os.environ[_CLASS_PATH_BEHIND] = os.pathsep.join(dict.fromkeys(paths))
        return {}
    return {"spark.jars": ",".join([*filter(None, [options.get("spark.jars")]), *map(str, jars)])}


def _quiet(java_options: str) -> str:
    """The Java options, with logging reduced to errors unless the caller configures it."""
    if "log4j2.configurationFile" in java_options:
        return java_options
    return f"{java_options} -Dlog4j2.configurationFile={files('anabranch.spark') / 'log4j2.properties'}".strip()
