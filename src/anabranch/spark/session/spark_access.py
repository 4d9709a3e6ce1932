"""Configures Spark to access a place by itself, which Parquet files and checkpoints need, or explains why it can't.

If a session has `s3a`, it is configured with the connection settings of the store's buckets, even if the user created
the session. Settings that the user made for a bucket stay. Credentials are not set: Java and the Python workers take
them from the environment in which Spark was started.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.blobs.address import ObjectStoreAddress, is_remote, parse
from anabranch.errors import InvalidArgument
from anabranch.spark.session.cache import cache_folder
from anabranch.spark.session.jars import coordinates
from anabranch.spark.session.s3a import bucket_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["configure_access", "is_s3", "remember_why_missing", "trust", "warn_once"]


_MARK: Final = "anabranch.s3a."  # prefix of a Hadoop setting for each bucket: the settings applied to it
_TRUST_STORE: Final = "javax.net.ssl.trustStore"
_why_missing: list[str] = []
_reported: set[str] = set()

_PASSWORD: Final = "changeit"  # Java's default; the store holds only public certificates
_TRUSTED: Final = "anabranch.trusts"  # a property of Java: the digests of the authorities that were added


def is_s3(place: str | None) -> bool:
    """True for the URL of a place in S3."""
    return place is not None and is_remote(place) and parse(place).kind == "s3"


def remember_why_missing(why: str) -> None:
    """Store the reason why this process's session has no `s3a`, for later results of `configure_access`."""
    _why_missing[:] = [why]


def configure_access(spark: SparkSession, place: str | None) -> str | None:
    """Configure Spark to access a place as the store's URL says. A folder or None needs no configuration.

    Returns None if Spark can access it, else the reason and a remedy, as a sentence without its full stop. Does not
    contact the place itself. Raises InvalidArgument for a URL that can't be parsed, and for certificates that Java
    can't load.
    """
    if place is None or not is_remote(place):
        return None
    address = parse(place)
    if address.kind != "s3":
        return f"Spark's own way into an object store is set up for S3 alone, and this is {address.kind}://"
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return "the settings of a Spark Connect session can't be changed to reach it"
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    if not _knows_s3a(jvm, hadoop):
        return "; ".join((*_why_missing, _what_to_do()))
    return _arrange(hadoop, address) or _trust(spark, jvm, address)


def warn_once(what: str, why: str) -> None:
    """Warn, once per process, that something uses a slower way."""
    text = f"{what}: {why}."
    if text not in _reported:
        _reported.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def _what_to_do() -> str:
    return (
        "this session does not support s3a://: start it with anabranch.spark.session.session(store=…) on a machine that reaches Maven "
        f"Central, or your own one with spark.jars.packages={coordinates()}"
    )


def _knows_s3a(jvm: Any, hadoop: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)
    except Py4JJavaError:  # the class, or one that it depends on, is missing
        return False
    return True


def _arrange(hadoop: Any, address: ObjectStoreAddress) -> str | None:
    """Apply the bucket's settings that are not set yet. Returns None, or the reason if the bucket is already configured
    differently: Hadoop opens a bucket once, so a session can't access it in two ways."""
    settings = bucket_settings(address, os.environ)
    mark = json.dumps(settings, sort_keys=True)
    before = hadoop.get(f"{_MARK}{address.bucket}")
    if before == mark:
        return None
    if before is not None:
        return f"this session reaches a bucket '{address.bucket}' in another way already; use a session for each"
    for setting, value in settings.items():
        name = f"fs.s3a.bucket.{address.bucket}.{setting}"
        if hadoop.get(name) is None:
            hadoop.set(name, value)
    hadoop.set(f"{_MARK}{address.bucket}", mark)
    return None


def _trust(spark: SparkSession, jvm: Any, address: ObjectStoreAddress) -> str | None:
    if address.ca is None:
        return None
    conf = spark.sparkContext.getConf()
    if not str(spark.sparkContext.master).startswith("local"):
        if _TRUST_STORE in (conf.get("spark.executor.extraJavaOptions") or ""):
            return None
        return (
            f"Spark's executors do not trust the authority in {address.ca}: give them a trust store that contains it, with "
            f"-D{_TRUST_STORE}=… in spark.executor.extraJavaOptions and spark.driver.extraJavaOptions"
        )
    from py4j.protocol import Py4JJavaError

    try:
        trust(jvm, address.ca)
    except (OSError, RuntimeError, Py4JJavaError) as exc:
        text = str(getattr(exc, "java_exception", exc))
        raise InvalidArgument(f"Java can't take the certificates in {address.ca}: {text.splitlines()[0]}") from exc
    return None


def trust(jvm: Any, authority: str) -> None:
    """Make this Java process trust the authority in a PEM file, for all connections that it opens from now on.

    If Java was started with its own trust store setting, that one stays in effect and nothing changes. Raises OSError
    if the file can't be read, and Java's error if it holds no certificate.
    """
    pem = Path(authority).read_bytes()
    system = jvm.java.lang.System
    trusted = (system.getProperty(_TRUSTED) or "").split()
    digest = hashlib.sha256(pem).hexdigest()
    if digest in trusted or (not trusted and system.getProperty(_TRUST_STORE) is not None):
        return
    present = system.getProperty(_TRUST_STORE) or _own_store(jvm)
    letters = jvm.java.io.CharArrayWriter()
    letters.write(_PASSWORD, 0, len(_PASSWORD))
    known = jvm.java.security.KeyStore.getInstance("JKS")
    with closing(jvm.java.io.FileInputStream(present)) as stream:
        known.load(stream, None)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    with closing(jvm.java.io.FileInputStream(authority)) as stream:
        for number, each in enumerate(factory.generateCertificates(stream)):
            known.setCertificateEntry(f"anabranch-{digest[:16]}-{number}", each)
    folder = cache_folder() / "java"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"trust-{hashlib.sha256(' '.join([*trusted, digest]).encode()).hexdigest()[:16]}.jks"
    fresh = made.with_name(f".{made.name}-{jvm.java.lang.ProcessHandle.current().pid()}")
    with closing(jvm.java.io.FileOutputStream(str(fresh))) as stream:
        known.store(stream, letters.toCharArray())
    fresh.replace(made)
    system.setProperty(_TRUST_STORE, str(made))
    system.setProperty(f"{_TRUST_STORE}Type", "JKS")
    system.setProperty(f"{_TRUST_STORE}Password", _PASSWORD)
    system.setProperty(_TRUSTED, " ".join([*trusted, digest]))
    # Java creates its default SSL context once, on first use, so replace it.
    context = jvm.javax.net.ssl.SSLContext.getInstance("TLS")
    context.init(None, None, None)
    jvm.javax.net.ssl.SSLContext.setDefault(context)


def _own_store(jvm: Any) -> str:
    security = Path(jvm.java.lang.System.getProperty("java.home"), "lib", "security")
    return str(next((each for name in ("jssecacerts", "cacerts") if (each := security / name).exists()), "/dev/null"))
