"""Provides the Java client for S3: Hadoop's `hadoop-aws` and its dependencies, fetched once from Maven Central.

Spark ships Hadoop without it, but ships Ivy, which fetches it. `spark.jars.packages` does the same, but at every start
and with a page of output; and if Maven Central can't be reached, no session starts at all.

`hadoop-aws` depends on one jar of 686 MB with every AWS service. The modules that are needed also exist as small jars:
37 jars, 13 MB. Dependencies of these that Spark already has are left out, because duplicates conflict.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from anabranch.errors import StoreUnavailable
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy
from anabranch.spark.session.cache import cache_folder
from anabranch.spark.session.java import ensure_java

__all__ = ["coordinates", "ensure_jars", "hadoop_version"]

FETCH_S: Final = 600  # limit for the whole download, also over a slow connection

# The release of AWS's modules that each Hadoop was built with. A Hadoop that is not listed gets all its dependencies.
_MODULES: Final = {"3.5.0": "2.35.4"}
_NEEDED: Final = ("s3-transfer-manager", "sts")  # each brings in its own dependencies
_SHIPPED: Final = ("io.netty", "org.apache.httpcomponents", "org.slf4j", "commons-logging", "commons-codec")

_CONNECT_MS: Final = 20000
_READ_MS: Final = 60000
# A single failure among eighty requests fails an attempt. The next one keeps what has been fetched.
_RETRY: Final = RetryPolicy(
    pause_s_min=1.0, pause_s_max=5.0, attempts_max=3, deadline_s=FETCH_S, errors=(StoreUnavailable,)
)


def hadoop_version() -> str | None:
    """The release of Hadoop that Spark ships; None if it can't be determined."""
    for jar in sorted(_shipped("hadoop-client-api-*.jar")):
        return jar.stem.removeprefix("hadoop-client-api-")
    return None


def coordinates() -> str:
    """The Maven coordinates to put in `spark.jars.packages` of a session that the user creates."""
    return f"org.apache.hadoop:hadoop-aws:{hadoop_version() or '<the version of Spark’s Hadoop>'}"


def ensure_jars() -> tuple[Path, ...]:
    """The jars in the user's cache folder, fetched if they are missing; empty if Spark's own folder has them.

    Safe to call from several processes at the same time. Takes up to half a minute the first time, ten minutes at most.
    DEFAULT_ARTIFACT_REPOSITORY names a mirror of Maven Central, as for Spark. Raises StoreUnavailable, with the reason
    as a sentence, if the jars can't be fetched or stored.
    """
    if any(_shipped("hadoop-aws-*.jar")):
        return ()
    hadoop = hadoop_version()
    if hadoop is None:
        raise StoreUnavailable("Spark's own folder of jars was not found, so hadoop-aws can't be matched to it")
    try:
        folder = cache_folder() / "spark-s3" / hadoop
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _fetch(hadoop, folder)
    except (OSError, RuntimeError) as exc:
        if isinstance(exc, StoreUnavailable):
            raise
        raise StoreUnavailable(f"hadoop-aws {hadoop} can't be stored: {exc}") from exc
    return tuple(sorted(folder.glob("*.jar")))


def _fetch(hadoop: str, folder: Path) -> None:
    """Fill a temporary folder beside `folder` and rename it, so that it is never visible half-filled."""
    sys.stderr.write(f"anabranch: fetching hadoop-aws {hadoop} from Maven Central, once\n")
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        (made / "ivy.xml").write_text(_wanted(hadoop), encoding="utf-8")
        (made / "settings.xml").write_text(_source(), encoding="utf-8")
        jars = made / "jars"

        def fetch() -> None:
            ivy_output = _ivy(made)
            if not any(jars.glob("hadoop-aws-*.jar")):
                log = folder.parent / "fetch.log"
                log.write_text(ivy_output, encoding="utf-8")
                raise StoreUnavailable(
                    f"hadoop-aws {hadoop} could not be fetched from Maven Central (see {log}); to fetch it from a mirror, set "
                    "DEFAULT_ARTIFACT_REPOSITORY"
                )

        _RETRY.call(Runtime(), fetch)
        try:
            jars.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _ivy(made: Path) -> str:
    """Run Ivy. Returns its output. If Ivy fails, no jars are left."""
    java = ensure_java() / "bin" / "java"
    ivy = next(iter(_shipped("ivy-*.jar")), None)
    if ivy is None:
        raise StoreUnavailable(
            "Spark's own folder of jars has no Ivy to fetch hadoop-aws with: put hadoop-aws and its jars into it"
        )
    command: list[str | Path] = [java, "-jar", ivy, "-settings", made / "settings.xml", "-ivy", made / "ivy.xml"]
    command += ["-cache", made / "cache", "-types", "jar", "-retrieve", f"{made}/jars/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=FETCH_S, check=False, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done after {FETCH_S} s"
    if done.returncode != 0:
        shutil.rmtree(made / "jars", ignore_errors=True)
    return done.stdout


def _wanted(hadoop: str) -> str:
    """The content of Ivy's file of dependencies."""
    modules = _MODULES.get(hadoop)
    needed = [("org.apache.hadoop", "hadoop-aws", hadoop)]
    excluded = [f"<exclude org={quoteattr(each)}/>" for each in _SHIPPED]
    if modules is not None:
        needed += [("software.amazon.awssdk", name, modules) for name in _NEEDED]
        excluded.append('<exclude org="software.amazon.awssdk" module="bundle"/>')
    lines = [
        f'<dependency org="{org}" name="{name}" rev="{rev}" conf="default-&gt;default"/>' for org, name, rev in needed
    ]
    return "\n".join(
        (
            '<ivy-module version="2.0"><info organisation="anabranch" module="spark-s3"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>", *lines, *excluded, "</dependencies></ivy-module>",
        )
    )  # fmt: skip


def _source() -> str:
    """The content of Ivy's settings: the repository (default: Maven Central) and the timeouts."""
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return f"""<ivysettings><settings defaultResolver="central"/>
<timeout-constraints>
<timeout-constraint name="patience" connectionTimeout="{_CONNECT_MS}" readTimeout="{_READ_MS}"/>
</timeout-constraints>
<resolvers>
<ibiblio name="central" m2compatible="true"{root} timeoutConstraint="patience"/>
</resolvers></ivysettings>
"""


def _shipped(pattern: str) -> list[Path]:
    """The matching jars in Spark's own folder of jars."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            return []
        home = str(Path(spec.origin).parent)
    return list(Path(home, "jars").glob(pattern))
