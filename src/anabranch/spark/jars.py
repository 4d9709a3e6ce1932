"""Java's client for S3: Hadoop's `hadoop-aws` and what it needs, fetched from Maven Central once and then kept.

Spark ships Hadoop without it. Ivy, which Spark ships too, fetches it. That is what `spark.jars.packages` does as well, but
at every start, with a page of chatter, and where Maven Central can't be reached no session starts at all.

`hadoop-aws` asks for one jar with every service that AWS has, 686 MB. What is needed of it is there in small modules:
37 jars, 13 MB. Left out are the modules' own copies of what Spark has already, for two of a kind get in each other's way.
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
from anabranch.spark.cache import cache_folder
from anabranch.spark.java import ensure_java

__all__ = ["coordinates", "ensure_jars", "hadoop_version"]

FETCH_S: Final = 600  # for all of it, over a slow line

# Which release of AWS's modules each Hadoop was made with. One that is not named here gets all that it asks for.
_MODULES: Final = {"3.5.0": "2.35.4"}
_NEEDED: Final = ("s3-transfer-manager", "sts")  # each brings those it is made of
_SHIPPED: Final = ("io.netty", "org.apache.httpcomponents", "org.slf4j", "commons-logging", "commons-codec")

_CONNECT_MS: Final = 5000
_READ_MS: Final = 60000


def hadoop_version() -> str | None:
    """The release of Hadoop that Spark ships; None where it is not to be seen."""
    for jar in sorted(_shipped("hadoop-client-api-*.jar")):
        return jar.stem.removeprefix("hadoop-client-api-")
    return None


def coordinates() -> str:
    """What a session of one's own names in `spark.jars.packages`."""
    return f"org.apache.hadoop:hadoop-aws:{hadoop_version() or '<the version of Spark’s Hadoop>'}"


def ensure_jars() -> tuple[Path, ...]:
    """The jars, from the user's cache folder, fetched if they are not there yet; none where Spark's own folder has them.

    Whoever fetches at the same time gets the same. Takes up to half a minute the first time, ten minutes at most.
    DEFAULT_ARTIFACT_REPOSITORY names a mirror of Maven Central, as for Spark. Raises StoreUnavailable, with a sentence,
    where they can't be had.
    """
    if any(_shipped("hadoop-aws-*.jar")):
        return ()
    hadoop = hadoop_version()
    if hadoop is None:
        raise StoreUnavailable("Spark's own folder of jars is not to be seen, so hadoop-aws can't be matched to it")
    try:
        folder = cache_folder() / "spark-s3" / hadoop
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _fetch(hadoop, folder)
    except (OSError, RuntimeError) as exc:
        if isinstance(exc, StoreUnavailable):
            raise
        raise StoreUnavailable(f"there is no place to keep hadoop-aws {hadoop}: {exc}") from exc
    return tuple(sorted(folder.glob("*.jar")))


def _fetch(hadoop: str, folder: Path) -> None:
    """Fill a folder beside the place and rename it there, so that nobody ever sees half of it."""
    sys.stderr.write(f"anabranch: fetching hadoop-aws {hadoop} from Maven Central, once\n")
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        (made / "ivy.xml").write_text(_wanted(hadoop), encoding="utf-8")
        (made / "settings.xml").write_text(_source(), encoding="utf-8")
        said = _ivy(made)
        jars = made / "jars"
        if not any(jars.glob("hadoop-aws-*.jar")):
            log = folder.parent / "fetch.log"
            log.write_text(said, encoding="utf-8")
            raise StoreUnavailable(f"hadoop-aws {hadoop} could not be fetched from Maven Central (see {log})")
        try:
            jars.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _ivy(made: Path) -> str:
    """Run Ivy. Returns what it said; it retrieves all or nothing."""
    java = ensure_java() / "bin" / "java"
    ivy = next(iter(_shipped("ivy-*.jar")), None)
    if ivy is None:
        raise StoreUnavailable("Spark's own folder of jars has no Ivy to fetch hadoop-aws with")
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
    """Ivy's file of dependencies."""
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
    """Ivy's settings: where from, by itself Maven Central, and with how much patience."""
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
    """Jars in the folder that Spark starts from."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        spec = find_spec("pyspark")
        if spec is None or spec.origin is None:
            return []
        home = str(Path(spec.origin).parent)
    return list(Path(home, "jars").glob(pattern))
