"""Whether Spark itself reaches a place, which it needs for Parquet files and for checkpoints; and having it do so.

A session that knows `s3a` is told how the store's buckets are reached, whoever started it. What its user has set for a
bucket stays. Keys are no settings: Java and Python's workers have them from the environment in which Spark was started.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any, Final

from anabranch.blobs.address import Address, is_remote, parse
from anabranch.errors import InvalidArgument
from anabranch.spark.jars import coordinates
from anabranch.spark.s3a import bucket_settings
from anabranch.spark.trust import trust

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_s3", "reach", "remember_why_missing", "tell_once"]

_MARK: Final = "anabranch.s3a."  # a setting of Hadoop's for each bucket: how it is reached
_TRUST_STORE: Final = "javax.net.ssl.trustStore"

_why_missing: list[str] = []
_told: set[str] = set()


def is_s3(place: str | None) -> bool:
    """True for the URL of a place in S3."""
    return place is not None and is_remote(place) and parse(place).kind == "s3"


def remember_why_missing(why: str) -> None:
    """Why this process's session has no `s3a`, for whoever asks later."""
    _why_missing[:] = [why]


def reach(spark: SparkSession, place: str | None) -> str | None:
    """Have Spark reach a place as the store's URL says, a folder or None being at hand anyway. Returns None if it does,
    else why it does not and what to do about that, as a sentence without its full stop.

    Nothing is asked of the place itself. Raises InvalidArgument for a URL that can't be read.
    """
    if place is None or not is_remote(place):
        return None
    address = parse(place)
    if address.kind != "s3":
        return f"Spark's own way into an object store is set up for S3 alone, and this is {address.kind}://"
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return "a session of Spark Connect can't be told how to reach it"
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if not _knows_s3a(jvm, hadoop):
        return "; ".join((*_why_missing, _what_to_do()))
    return _arrange(hadoop, address) or _trust(spark, jvm, address)


def tell_once(what: str, why: str) -> None:
    """Warn that something goes the slower way, once a process."""
    text = f"{what}: {why}."
    if text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _what_to_do() -> str:
    return (
        "this session knows no s3a://: start it by anabranch.spark.session(store=…) on a machine that reaches Maven "
        f"Central, or your own one with spark.jars.packages={coordinates()}"
    )


def _knows_s3a(jvm: Any, hadoop: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)
    except Py4JJavaError:  # the class, or one that it needs, is not there
        return False
    return True


def _arrange(hadoop: Any, address: Address) -> str | None:
    """Set what is not set. Hadoop opens a bucket once, so it can't be reached in two ways."""
    said = bucket_settings(address, os.environ)
    mark = json.dumps(said, sort_keys=True)
    before = hadoop.get(f"{_MARK}{address.bucket}")
    if before == mark:
        return None
    if before is not None:
        return f"this session reaches a bucket '{address.bucket}' in another way already; use a session for each"
    for name, value in said.items():
        _set(hadoop, address, name, value)
    hadoop.set(f"{_MARK}{address.bucket}", mark)
    return None


def _set(hadoop: Any, address: Address, name: str, value: str) -> None:
    name = f"fs.s3a.bucket.{address.bucket}.{name}"
    if hadoop.get(name) is None:
        hadoop.set(name, value)


def _trust(spark: SparkSession, jvm: Any, address: Address) -> str | None:
    if address.ca is None:
        return None
    conf = spark.sparkContext.getConf()
    if not str(spark.sparkContext.master).startswith("local"):
        if _TRUST_STORE in (conf.get("spark.executor.extraJavaOptions") or ""):
            return None
        return (
            f"Spark's executors do not know the authority in {address.ca}: give them a trust store that holds it, by "
            f"-D{_TRUST_STORE}=… in spark.executor.extraJavaOptions and spark.driver.extraJavaOptions"
        )
    from py4j.protocol import Py4JJavaError

    try:
        trust(jvm, address.ca)
    except (OSError, RuntimeError, Py4JJavaError) as exc:
        raise InvalidArgument(f"Java can't take the certificates in {address.ca}: {_first_line(exc)}") from exc
    return None


def _first_line(exc: BaseException) -> str:
    return str(getattr(exc, "java_exception", exc)).splitlines()[0]
